//! Key-value reads: every client has a few READs outstanding, each from a server drawn by chance.

use std::collections::BTreeMap;

use super::{Bound, Busy, Pair, Posting, Workload};
use crate::Random;
use crate::sim::fabric::HostNotice;
use crate::sim::memory::Peer;
use crate::sim::transport::{Message, Notice};

/// The first quarter of the hosts (at least one) are servers, the others clients.
#[derive(Debug)]
pub struct KeyValue {
    servers: u32,
    clients: Vec<Client>,
    value_bytes: u32,
    outstanding: u32,
    latencies_ps: Vec<u64>,
    done: usize,
    /// Bytes that each server gave out, to each client.
    read: BTreeMap<(u32, u32), u64>,
}

#[derive(Debug)]
struct Client {
    host: u32,
    random: Random,
    left: u32,
    open: BTreeMap<(Peer, u32), u64>,
    next_id: u32,
    done_ps: u64,
}

impl KeyValue {
    /// Every client reads `reads` values, `outstanding` at a time.
    #[must_use]
    pub fn new(hosts: u32, reads: u32, value_bytes: u32, outstanding: u32, seed: u64) -> Self {
        let servers = (hosts / 4).max(1);
        let client = |host| Client {
            host,
            random: Random::new(seed ^ u64::from(host).wrapping_mul(0xd6e8_feb8_6659_fd93)),
            left: reads.max(1),
            open: BTreeMap::new(),
            next_id: 0,
            done_ps: 0,
        };
        Self {
            servers,
            clients: (servers..hosts).map(client).collect(),
            value_bytes,
            outstanding: outstanding.max(1),
            latencies_ps: Vec::new(),
            done: 0,
            read: BTreeMap::new(),
        }
    }

    fn post(&mut self, now_ps: u64, at: usize, out: &mut Vec<Posting>) {
        let Some(client) = self.clients.get_mut(at) else { return };
        while client.left > 0 && client.open.len() < self.outstanding as usize {
            let server = u32::try_from(client.random.below(u64::from(self.servers))).unwrap_or(0);
            let id = client.next_id;
            client.next_id += 1;
            client.left -= 1;
            client.open.insert((Peer::of(server), id), now_ps);
            let message = Message { id, bytes: self.value_bytes, notify: false, read: true };
            out.push(Posting { pair: Pair::new(client.host, server), message });
        }
    }
}

impl Workload for KeyValue {
    fn pairs(&self) -> Vec<Pair> {
        let clients = self.clients.iter().map(|client| client.host);
        clients.flat_map(|client| (0..self.servers).map(move |server| Pair::new(client, server))).collect()
    }

    fn start(&mut self, now_ps: u64, out: &mut Vec<Posting>) {
        for at in 0..self.clients.len() {
            self.post(now_ps, at, out);
        }
    }

    fn on_notice(&mut self, now_ps: u64, notice: &HostNotice, out: &mut Vec<Posting>) {
        let Notice::Sent { peer, id } = notice.notice else { return };
        let Some(at) = notice.host.checked_sub(self.servers).map(|at| at as usize) else { return };
        let Some(client) = self.clients.get_mut(at) else { return };
        let Some(posted_ps) = client.open.remove(&(peer, id)) else { return };
        self.latencies_ps.push(now_ps - posted_ps);
        *self.read.entry((peer.host, client.host)).or_default() += u64::from(self.value_bytes);
        if client.left == 0 && client.open.is_empty() {
            client.done_ps = now_ps;
            self.done += 1;
        }
        self.post(now_ps, at, out);
    }

    fn is_done(&self) -> bool {
        self.done == self.clients.len()
    }

    fn payload_bytes(&self) -> u64 {
        let of = |client: &Client| u64::from(client.next_id + client.left) * u64::from(self.value_bytes);
        self.clients.iter().map(of).sum()
    }

    /// By the busiest line of what was drawn; known only when all is done. Answers have shorter headers than the full packet
    /// that the bound speaks of, and the first of them is in the RTT already: only payload is counted, so that nothing is
    /// faster than this.
    fn ideal_ps(&self, bound: &Bound) -> u64 {
        let mut busy = Busy::default();
        for (&(server, client), &bytes) in &self.read {
            busy.add(server, client, bytes);
        }
        bound.line.time_ps(busy.most()) + bound.rtt_ps
    }

    fn flows(&self) -> Vec<(u64, u64)> {
        let of = |client: &Client| {
            let (host, done_ps) = (client.host, client.done_ps);
            (0..self.servers)
                .map(move |server| (done_ps, self.read.get(&(server, host)).copied().unwrap_or(0)))
        };
        self.clients.iter().flat_map(of).collect()
    }

    fn latencies_ps(&self) -> &[u64] {
        &self.latencies_ps
    }
}
