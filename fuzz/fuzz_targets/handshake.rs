//! See `metaroce_fuzz::handshake`.
#![cfg_attr(fuzzing, no_main)]

metaroce_fuzz::target!(handshake);
