//! See `metaroce_fuzz::scenario`.
#![cfg_attr(fuzzing, no_main)]

metaroce_fuzz::target!(scenario);
