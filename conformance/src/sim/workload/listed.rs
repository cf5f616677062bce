//! Messages from a list: when, from whom, to whom, how many bytes.

use std::collections::BTreeMap;

use super::{Bound, Busy, Pair, Posting, Workload};
use crate::sim::fabric::HostNotice;
use crate::sim::memory::Peer;
use crate::sim::transport::{Message, Notice};
use crate::sim::units::{US, from_f64, to_f64};

/// One message of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// When it is posted, ps after the start.
    pub at_ps: u64,
    /// Sender.
    pub from: u32,
    /// Receiver.
    pub to: u32,
    /// Bytes, at least 1.
    pub bytes: u32,
}

/// Messages at given times.
#[derive(Debug)]
pub struct Listed {
    /// In order of time.
    entries: Vec<Entry>,
    next: usize,
    start_ps: u64,
    open: BTreeMap<(u32, Peer, u32), u64>,
    latencies_ps: Vec<u64>,
    done_ps: BTreeMap<Pair, u64>,
    done: usize,
}

impl Listed {
    /// These messages.
    #[must_use]
    pub fn new(mut entries: Vec<Entry>) -> Self {
        entries.sort_by_key(|entry| entry.at_ps);
        Self {
            entries,
            next: 0,
            start_ps: 0,
            open: BTreeMap::new(),
            latencies_ps: Vec::new(),
            done_ps: BTreeMap::new(),
            done: 0,
        }
    }

    /// Reads lines of `at_us,from,to,bytes`; empty ones, and what follows a `#`, are left out.
    ///
    /// # Errors
    /// The first line that can't be read, or names a host that is not below `hosts`.
    pub fn parse(text: &str, hosts: u32) -> Result<Vec<Entry>, String> {
        let lines = text.lines().map(|line| line.split('#').next().unwrap_or("").trim());
        let entry = |line: &str| {
            let mut fields = line.split(',').map(str::trim);
            let mut next = || fields.next();
            let at_us: f64 = next()?.parse().ok()?;
            let (from, to) = (next()?.parse().ok()?, next()?.parse().ok()?);
            let bytes = next()?.parse().ok()?;
            let right = from < hosts && to < hosts && from != to && bytes > 0 && at_us >= 0.0;
            (right && fields.next().is_none()).then(|| Entry {
                at_ps: from_f64(at_us * to_f64(US)),
                from,
                to,
                bytes,
            })
        };
        lines
            .filter(|line| !line.is_empty())
            .map(|line| entry(line).ok_or_else(|| format!("not `at_us,from,to,bytes`: {line}")))
            .collect()
    }
}

impl Workload for Listed {
    fn pairs(&self) -> Vec<Pair> {
        let mut pairs: Vec<Pair> = self.entries.iter().map(|entry| Pair::new(entry.from, entry.to)).collect();
        pairs.sort_unstable();
        pairs.dedup();
        pairs
    }

    fn start(&mut self, now_ps: u64, out: &mut Vec<Posting>) {
        self.start_ps = now_ps;
        self.on_time(now_ps, out);
    }

    fn next_ps(&self) -> Option<u64> {
        self.entries.get(self.next).map(|entry| self.start_ps + entry.at_ps)
    }

    fn on_time(&mut self, now_ps: u64, out: &mut Vec<Posting>) {
        while self.next_ps().is_some_and(|at_ps| at_ps <= now_ps) {
            let Some(entry) = self.entries.get(self.next) else { return };
            let id = u32::try_from(self.next).unwrap_or(u32::MAX);
            self.next += 1;
            let pair = Pair::new(entry.from, entry.to);
            self.open.insert((entry.from, pair.receiver(), id), now_ps);
            let message = Message { id, bytes: entry.bytes, notify: false, read: false };
            out.push(Posting { pair, message });
        }
    }

    fn on_notice(&mut self, now_ps: u64, notice: &HostNotice, _out: &mut Vec<Posting>) {
        let Notice::Sent { peer, id } = notice.notice else { return };
        let Some(posted_ps) = self.open.remove(&(notice.host, peer, id)) else { return };
        self.latencies_ps.push(now_ps - posted_ps);
        self.done_ps.insert(Pair::new(notice.host, peer.host), now_ps);
        self.done += 1;
    }

    fn is_done(&self) -> bool {
        self.done == self.entries.len()
    }

    fn payload_bytes(&self) -> u64 {
        self.entries.iter().map(|entry| u64::from(entry.bytes)).sum()
    }

    /// The busiest line alone, or the last message alone, whichever ends later.
    fn ideal_ps(&self, bound: &Bound) -> u64 {
        let mut busy = Busy::default();
        for entry in &self.entries {
            busy.add(entry.from, entry.to, u64::from(entry.bytes));
        }
        let alone = self.entries.iter().map(|entry| entry.at_ps + bound.line_ps(u64::from(entry.bytes)));
        alone.max().unwrap_or(0).max(bound.line_ps(busy.most())) + bound.rtt_ps
    }

    fn flows(&self) -> Vec<(u64, u64)> {
        let bytes = |pair: Pair| {
            let of_pair = self.entries.iter().filter(|entry| (entry.from, entry.to) == (pair.from, pair.to));
            of_pair.map(|entry| u64::from(entry.bytes)).sum()
        };
        self.pairs()
            .into_iter()
            .map(|pair| (self.done_ps.get(&pair).copied().unwrap_or(0), bytes(pair)))
            .collect()
    }

    fn latencies_ps(&self) -> &[u64] {
        &self.latencies_ps
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_read_with_its_remarks_and_its_first_bad_line_named() {
        let entries = Listed::parse("# at, from, to, bytes\n0.5, 0,1,4096 # first\n\n2,1,0,1\n", 2).unwrap();
        assert_eq!(entries.len(), 2);
        assert_eq!(entries[0], Entry { at_ps: 500_000, from: 0, to: 1, bytes: 4_096 });
        for bad in ["0,0,2,1", "0,0,0,1", "0,0,1", "0,0,1,1,1", "x,0,1,1", "0,0,1,0"] {
            assert!(Listed::parse(bad, 2).unwrap_err().contains(bad), "{bad}");
        }
    }
}
