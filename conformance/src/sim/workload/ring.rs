//! Ring all-reduce, cut into slices and pipelined as collective libraries do.

use super::streams::shuffle;
use super::{Bound, Posting, Workload};
use crate::sim::fabric::HostNotice;
use crate::sim::transport::{Message, Notice};

/// Every host holds `bytes`, cut into one chunk for each host, each chunk into slices. In 2(n − 1) steps every host
/// sends a chunk to the next one in the ring: a slice goes as soon as the same slice of the step before has come.
#[derive(Debug)]
pub struct RingAllReduce {
    /// Hosts in the order of the ring.
    order: Vec<u32>,
    /// For each host its place in the ring.
    place: Vec<usize>,
    slices: u32,
    slice_bytes: u32,
    steps: u32,
    received: Vec<u32>,
    sent: Vec<u32>,
    done_ps: Vec<u64>,
    done: usize,
}

impl RingAllReduce {
    /// Among `hosts` hosts in an order drawn from `seed`. The chunk is rounded up to whole slices.
    #[must_use]
    pub fn new(hosts: u32, bytes: u64, slice_bytes: u32, seed: u64) -> Self {
        let mut order: Vec<u32> = (0..hosts).collect();
        shuffle(&mut order, seed);
        let mut place = vec![0; order.len()];
        for (at, &host) in order.iter().enumerate() {
            if let Some(entry) = place.get_mut(host as usize) {
                *entry = at;
            }
        }
        let chunk = bytes.div_ceil(u64::from(hosts.max(1)));
        let slices = u32::try_from(chunk.div_ceil(u64::from(slice_bytes.max(1)))).unwrap_or(u32::MAX);
        let count = order.len();
        Self {
            order,
            place,
            slices,
            slice_bytes,
            steps: 2 * hosts.saturating_sub(1),
            received: vec![0; count],
            sent: vec![0; count],
            done_ps: vec![0; count],
            done: 0,
        }
    }

    fn messages(&self) -> u32 {
        self.slices * self.steps
    }

    fn next(&self, at: usize) -> u32 {
        self.order.get((at + 1) % self.order.len().max(1)).copied().unwrap_or(0)
    }

    fn posting(&self, at: usize, id: u32) -> Posting {
        let from = self.order.get(at).copied().unwrap_or(0);
        let message = Message { id, bytes: self.slice_bytes, notify: true };
        Posting { from, to: self.next(at), message }
    }

    fn note_progress(&mut self, now_ps: u64, at: usize) {
        let all = self.messages();
        let count = |list: &[u32]| list.get(at).copied().unwrap_or(0);
        if count(&self.received) == all
            && count(&self.sent) == all
            && let Some(done_ps) = self.done_ps.get_mut(at)
        {
            *done_ps = now_ps;
            self.done += 1;
        }
    }
}

impl Workload for RingAllReduce {
    fn pairs(&self) -> Vec<(u32, u32)> {
        self.order.iter().enumerate().map(|(at, &host)| (host, self.next(at))).collect()
    }

    fn start(&mut self, _now_ps: u64, out: &mut Vec<Posting>) {
        for at in 0..self.order.len() {
            out.extend((0..self.slices).map(|slice| self.posting(at, slice)));
        }
    }

    fn on_notice(&mut self, now_ps: u64, notice: &HostNotice, out: &mut Vec<Posting>) {
        let Some(&at) = self.place.get(notice.host as usize) else { return };
        match notice.notice {
            Notice::Sent { .. } => {
                if let Some(sent) = self.sent.get_mut(at) {
                    *sent += 1;
                }
            }
            Notice::Delivered { id, .. } => {
                if let Some(received) = self.received.get_mut(at) {
                    *received += 1;
                }
                let next = id + self.slices;
                if next < self.messages() {
                    out.push(self.posting(at, next));
                }
            }
            Notice::Failed { .. } => return,
        }
        self.note_progress(now_ps, at);
    }

    fn is_done(&self) -> bool {
        self.done == self.order.len()
    }

    fn payload_bytes(&self) -> u64 {
        u64::from(self.messages()) * u64::from(self.slice_bytes) * self.order.len() as u64
    }

    fn ideal_ps(&self, bound: &Bound) -> u64 {
        let slice_ps = bound.line_ps(u64::from(self.slice_bytes));
        let chunk_ps = slice_ps * u64::from(self.slices);
        // A step can't begin before its first slice has come; that matters only where chunks are that short.
        let wait_ps = (slice_ps + bound.rtt_ps / 2).saturating_sub(chunk_ps);
        let fill_ps = wait_ps * u64::from(self.steps.saturating_sub(1));
        chunk_ps * u64::from(self.steps) + bound.rtt_ps + fill_ps
    }

    fn flows(&self) -> Vec<(u64, u64)> {
        let bytes = u64::from(self.messages()) * u64::from(self.slice_bytes);
        self.done_ps.iter().map(|&done_ps| (done_ps, bytes)).collect()
    }
}
