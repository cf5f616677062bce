//! Rules of `SPEC.md` one by one: what is on the wire, and what an endpoint does with what a scripted peer sends.
#![allow(unused_must_use, reason = "what becomes of a packet is often seen by what is sent in answer")]

mod acknowledge;
mod ending;
mod handshake;
mod judge;
mod refusal;
mod script;
mod security;
mod sender;
mod steering;
mod tape;
mod window;
mod wire;
