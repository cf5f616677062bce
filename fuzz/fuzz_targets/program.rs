//! See `metaroce_fuzz::program`.
#![cfg_attr(fuzzing, no_main)]

metaroce_fuzz::target!(program);
