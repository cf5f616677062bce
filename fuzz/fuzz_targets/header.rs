//! See `metaroce_fuzz::header`.
#![cfg_attr(fuzzing, no_main)]

metaroce_fuzz::target!(header);
