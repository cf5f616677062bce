//! See `metaroce_fuzz::frame`.
#![cfg_attr(fuzzing, no_main)]

metaroce_fuzz::target!(frame);
