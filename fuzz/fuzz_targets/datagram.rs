//! See `metaroce_fuzz::datagram`.
#![cfg_attr(fuzzing, no_main)]

metaroce_fuzz::target!(datagram);
