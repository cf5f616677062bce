//! See `metaroce_fuzz::control`.
#![cfg_attr(fuzzing, no_main)]

metaroce_fuzz::target!(control);
