//! What the ring reports: datagrams, and sends that are done.

use metaroce_core::time::Instant;
use metaroce_mio::Host;
use metaroce_mio::backend::DATAGRAMS_PER_ROUND;
use metaroce_mio::sys::SendFault;

use crate::outgoing::REPEAT_NS;
use crate::sys::ring::{Completion, Tag};
use crate::sys::slots::{Means, Stage, was_copied};
use crate::uring::Uring;

/// A filled receive buffer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival {
    plane: u8,
    buffer: u16,
    length: usize,
}

impl Uring {
    /// Takes all completions that are there: sends are dealt with, arrivals put into the inbox. No system call.
    pub(crate) fn poll(&mut self, host: &mut Host) {
        while let Some(completion) = self.ring.take() {
            match completion.tag {
                Tag::Receive(plane) => self.on_receive(plane, &completion, host),
                Tag::Send(slot) => self.on_send(slot, &completion, host),
                Tag::Wake => {
                    self.woken = true;
                    if let Some(wake) = &mut self.wake {
                        wake.on_read();
                    }
                }
                Tag::Cancel => {}
            }
        }
    }

    /// Hands arrivals to the core, up to the budget of a round; says how many datagrams.
    pub(crate) fn hand_in(&mut self, now: Instant, host: &mut Host) -> usize {
        let Some(buffers) = &mut self.buffers else { return 0 };
        let mut datagrams = 0;
        while datagrams < DATAGRAMS_PER_ROUND {
            let Some(arrival) = self.inbox.pop_front() else { break };
            host.stats.receive_calls += 1;
            match buffers.received(arrival.buffer, arrival.length) {
                Some((message, bytes)) => {
                    datagrams += host.hand_in(now, arrival.plane.into(), &message, bytes);
                }
                None => host.stats.receive_errors += 1,
            }
            buffers.give_back(arrival.buffer);
        }
        buffers.publish();
        datagrams
    }

    fn on_receive(&mut self, plane: u8, completion: &Completion, host: &mut Host) {
        let Some(receiving) = self.planes.get_mut(usize::from(plane)) else { return };
        receiving.armed = !completion.is_last();
        if let (Some(buffer), Ok(length)) = (completion.buffer(), usize::try_from(completion.result)) {
            receiving.errors = 0;
            self.stats.receive_restarts += u64::from(completion.is_last());
            self.inbox.push_back(Arrival { plane, buffer, length });
            return;
        }
        let Some(error) = completion.error() else { return };
        if error.raw_os_error() == Some(libc::ENOBUFS) {
            // All buffers are filled; they are given back as they are read.
            self.stats.buffers_exhausted += 1;
            return;
        }
        // Mostly ICMP messages about earlier sends; nothing that lasts.
        self.stats.receive_restarts += 1;
        host.stats.receive_errors += 1;
        receiving.errors += 1;
        if receiving.errors > ERRORS_MAX {
            self.failure = Some(error);
        }
    }

    fn on_send(&mut self, index: u32, completion: &Completion, host: &mut Host) {
        let Some(slot) = self.slots.get_mut(index) else { return };
        let to = slot.destination().map(|to| to.ip());
        let job = &mut slot.job;
        if completion.is_notice() {
            job.notices = job.notices.saturating_sub(1);
            let copied = was_copied(completion.result);
            self.stats.zero_copy_copied += u64::from(copied);
            if let Some(to) = to {
                self.zero_copy.on_report(job.plane, to, copied);
            }
        } else {
            job.notices += u8::from(!completion.is_last());
            match completion.error() {
                None => self.on_sent(index, host),
                Some(error) => self.on_send_error(index, &error, host),
            }
        }
        if self
            .slots
            .get_mut(index)
            .is_some_and(|slot| slot.job.stage == Stage::Finished && slot.job.notices == 0)
        {
            self.slots.release(index);
        }
    }

    fn on_sent(&mut self, index: u32, host: &mut Host) {
        let Some(slot) = self.slots.get_mut(index) else { return };
        let (datagrams, bytes) = match slot.job.single {
            None => (slot.count(), slot.bytes()),
            Some(segment) => (1, slot.segment_bytes(segment)),
        };
        if datagrams > 1 {
            self.files.prove(slot.job.socket, slot.segment_bytes(0));
        }
        host.stats.datagrams_sent += datagrams as u64;
        host.stats.bytes_sent += bytes as u64;
        host.stats.gso_batches += u64::from(datagrams > 1);
        if self.doubt_gso && datagrams == 1 {
            // It went out singly where a segmented send was refused: segmentation does not work here.
            self.capabilities.gso = false;
            self.doubt_gso = false;
        }
        self.go_on(index);
    }

    fn on_send_error(&mut self, index: u32, error: &std::io::Error, host: &mut Host) {
        let Some(slot) = self.slots.get_mut(index) else { return };
        let whole = slot.job.single.is_none();
        let datagrams = if whole { slot.count() } else { 1 };
        let fault = SendFault::of(error);
        if error.raw_os_error() == Some(libc::ECANCELED) {
            host.stats.send_errors.other += datagrams as u64;
            return self.finish(index);
        }
        match slot.job.means {
            Means::Direct if fault == SendFault::NoBuffers => {
                // The pages can't be locked, by the limit of this user: from now on they are copied.
                slot.job.means = Means::Copied;
                self.stats.zero_copy_refused += 1;
                self.zero_copy.give_up();
                return self.submit_slot(index);
            }
            Means::Registered(buffer) if may_be_of_registration(error) => {
                slot.job.means = Means::Copied;
                self.stats.registered_refused += 1;
                match fault {
                    SendFault::TooLarge => self.registered.in_pages(buffer),
                    SendFault::NoBuffers => {}
                    _ => self.registered.give_up(),
                }
                let socket = slot.job.socket;
                self.files.hold(socket);
                return self.submit_slot(index);
            }
            _ => {}
        }
        if whole && datagrams > 1 && matches!(fault, SendFault::TooLarge | SendFault::Unsupported) {
            host.stats.send_errors.gso_refused += 1;
            self.doubt_gso = fault == SendFault::Unsupported;
            slot.job.single = Some(0);
            let socket = slot.job.socket;
            self.files.hold(socket);
            return self.submit_slot(index);
        }
        if fault == SendFault::Refused && !slot.job.repeated {
            // The message was about an earlier datagram; reporting it has cleared it.
            slot.job.repeated = true;
            host.stats.send_errors.refused += 1;
            return self.submit_slot(index);
        }
        let again = host.stats.send_errors.count(fault, datagrams);
        if again {
            let socket = slot.job.socket;
            self.files.hold(socket);
            self.repeats.push_back(index);
            self.repeat_at.get_or_insert(self.now.after(REPEAT_NS));
            return;
        }
        self.doubt_gso = false;
        self.go_on(index);
    }

    /// A send is over: the next segment, if they go out singly, or the end.
    fn go_on(&mut self, index: u32) {
        let Some(slot) = self.slots.get_mut(index) else { return };
        match slot.job.single {
            Some(segment) if segment + 1 < slot.count() => {
                slot.job.single = Some(segment + 1);
                slot.job.repeated = false;
                self.submit_slot(index);
            }
            _ => self.finish(index),
        }
    }

    /// Nothing more is to be done with a slot.
    pub(crate) fn finish(&mut self, index: u32) {
        let Some(slot) = self.slots.get_mut(index) else { return };
        if slot.job.stage != Stage::Taken {
            return;
        }
        slot.job.stage = Stage::Finished;
        self.files.on_complete(slot.job.socket);
    }
}

/// Whether sending from a registered buffer may be what the kernel refuses. A copy tells, if it is refused too.
fn may_be_of_registration(error: &std::io::Error) -> bool {
    let refusals =
        [libc::EFAULT, libc::EINVAL, libc::EOPNOTSUPP, libc::EMSGSIZE, libc::ENOBUFS, libc::ENOMEM];
    error.raw_os_error().is_some_and(|number| refusals.contains(&number))
}

/// Errors in a row that receiving survives.
const ERRORS_MAX: usize = 64;
