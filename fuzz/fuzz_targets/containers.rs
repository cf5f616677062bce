//! See `metaroce_fuzz::containers`.
#![cfg_attr(fuzzing, no_main)]

metaroce_fuzz::target!(containers);
