//! What an endpoint without connections does with packets of a connection.

use super::field::Fields;
use super::layout::{
    ACK, Ack, Base, CONTROL, Connect, DATA, Data, LAST, PROBE, PROBE_REPLY, close, control, probe,
    reset_quote,
};
use super::{Answer, File, Vector, Verdict, hex};

/// Bytes of a RESET with a quote.
const RESET_BYTES: usize = Base::BYTES + 4 + Base::BYTES;

pub(super) fn file() -> File {
    let send = Data { opcode: 1, flags: LAST, length: 4, payload: b"abcd".to_vec(), ..Data::default() };
    let unpadded = RESET_BYTES - Base::BYTES - 16;
    let block = || Fields::default().part("ack", Ack::full(5).fields());
    let reply = || Fields::default().u64("token", 1).part("ack", Ack::full(5).fields());
    let confirm = || control(3, "CONFIRM").silent(&[0; 3]).u64("echoed_nonce", 1);
    let vectors = vec![
        answered(
            "data",
            "DATA draws a RESET that quotes its base header.",
            Base::of(DATA).packet(send.fields()),
        ),
        answered("probe", "So does a PROBE.", Base::of(PROBE).packet(probe(0xffff, [0; 2]).silent(&[0; 28]))),
        answered(
            "probe-as-large-as-reset",
            "The smallest packet that draws one.",
            Base::of(PROBE).packet(probe(0xffff, [0; 2]).silent(&vec![0; unpadded])),
        ),
        silent(
            "probe-smaller-than-reset",
            "A RESET would be larger than this PROBE.",
            "MR-CLS-13",
            Base::of(PROBE).packet(probe(0xffff, [0; 2]).silent(&vec![0; unpadded - 1])),
        ),
        silent("ack", "An ACK draws nothing.", "MR-CLS-17", Base::of(ACK).packet(block())),
        silent("probe-reply", "Nor does a PROBE_REPLY.", "MR-CLS-17", Base::of(PROBE_REPLY).packet(reply())),
        silent(
            "accept",
            "Nor does an ACCEPT.",
            "MR-CLS-17",
            Base::of(CONTROL).packet(Connect::of(2).fields()),
        ),
        silent("confirm", "Nor does a CONFIRM.", "MR-CLS-17", Base::of(CONTROL).packet(confirm())),
        silent(
            "close",
            "Nor does a CLOSE.",
            "MR-CLS-17",
            Base::of(CONTROL).packet(close(6, "CLOSE", 0, None)),
        ),
        silent(
            "close-ack",
            "Nor does a CLOSE_ACK.",
            "MR-CLS-17",
            Base::of(CONTROL).packet(close(7, "CLOSE_ACK", 0, None)),
        ),
    ];
    let about = "An endpoint that knows no connection: MR-CLS-12, MR-CLS-13, MR-CLS-17.";
    File { name: "unknown.json", version: 0, about, vectors }
}

fn answered(name: &str, about: &str, packet: Fields) -> Vector {
    let mut quote = [0; Base::BYTES];
    for (to, from) in quote.iter_mut().zip(packet.clone().into_bytes()) {
        *to = from;
    }
    let body = Some(hex(&reset_quote(quote).into_bytes()));
    Vector { answer: Some(Answer { body }), ..silent(name, about, "MR-CLS-12", packet) }
}

fn silent(name: &str, about: &str, requirement: &'static str, packet: Fields) -> Vector {
    let name = format!("unknown/{name}");
    let bytes = packet.into_bytes();
    let vector = Vector::dropped(&name, about, &[requirement], Verdict::UnknownConnection, &bytes);
    Vector { answer: Some(Answer { body: None }), ..vector }
}
