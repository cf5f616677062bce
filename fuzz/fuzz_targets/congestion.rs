//! See `metaroce_fuzz::congestion`.
#![cfg_attr(fuzzing, no_main)]

metaroce_fuzz::target!(congestion);
