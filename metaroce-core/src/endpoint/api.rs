//! What the application calls: regions, connections, streams, work.

use super::{CloseMode, ConnectError, Endpoint};
use crate::config::ConnectOptions;
use crate::connection::{self, Connection, OpenError, Role, State};
use crate::event::Status;
use crate::ids::{ConnectionHandle, PathId, ProtectionDomain, QueueId, RegionId, RegionKey, StreamId};
use crate::region::{self, RegionError, RegionOptions, RegisteredRegion};
use crate::request::{DatagramRequest, PostError, QueueOptions, Segment, StreamOptions, WorkRequest};
use crate::stats::{ConnectionStats, PathStats, PlaneStats, StreamStats};
use crate::storage::Storage;
use crate::stream::{self, TagEntry};
use crate::table::Idx;
use crate::time::Instant;
use crate::view::View;
use crate::wire::RejectReason;

impl<S: Storage> Endpoint<S> {
    /// Registers a stretch of memory; the backend knows it by [`RegionId::slot`].
    ///
    /// # Errors
    /// [`RegionError::Full`], [`RegionError::Range`].
    pub fn register_region(&mut self, options: RegionOptions) -> Result<RegisteredRegion, RegionError> {
        let mut view = self.view().ok_or(RegionError::Full)?;
        let generation = *view.next_generation;
        *view.next_generation = generation.wrapping_add(1);
        region::register(&mut view.regions, view.secrets, generation, options)
    }

    /// Forgets a region. Afterwards no packet reaches it.
    ///
    /// # Errors
    /// [`RegionError::InUse`] while work requests, receives or READs of a peer refer to it; [`RegionError::NoRegion`].
    pub fn deregister_region(&mut self, region: RegionId) -> Result<(), RegionError> {
        let mut view = self.view().ok_or(RegionError::NoRegion)?;
        region::deregister(&mut view.regions, region)
    }

    /// Gives a region a new key; the old one is dead at once. For memory windows: a peer's SEND with invalidate takes
    /// the key away, this gives the next one.
    ///
    /// # Errors
    /// [`RegionError::NoRegion`].
    pub fn rekey_region(&mut self, region: RegionId) -> Result<RegionKey, RegionError> {
        let mut view = self.view().ok_or(RegionError::NoRegion)?;
        region::rekey(&mut view.regions, view.secrets, region)
    }

    /// Opens a connection. Streams may be opened and work posted at once; [`Event::Connected`](crate::Event) or
    /// [`Event::Closed`](crate::Event) follows.
    ///
    /// # Errors
    /// [`ConnectError::Full`], [`ConnectError::PrivateData`].
    pub fn connect(
        &mut self,
        now: Instant,
        options: ConnectOptions<'_>,
    ) -> Result<ConnectionHandle, ConnectError> {
        let mut view = self.view().ok_or(ConnectError::Full)?;
        let slot = connection::connect(&mut view, now, &options)?;
        Ok(view.connections.at(slot).handle(slot))
    }

    /// Accepts an incoming connection; the peer may reach regions of `domain`.
    ///
    /// # Errors
    /// [`ConnectError::State`] if it is not an incoming one; [`ConnectError::PrivateData`].
    pub fn accept(
        &mut self,
        now: Instant,
        connection: ConnectionHandle,
        domain: ProtectionDomain,
        private_data: &[u8],
    ) -> Result<(), ConnectError> {
        let mut view = self.view().ok_or(ConnectError::State)?;
        let slot = incoming(&view, connection)?;
        Ok(connection::accept(&mut view, now, slot, domain, private_data)?)
    }

    /// Refuses an incoming connection.
    ///
    /// # Errors
    /// As [`accept`](Self::accept).
    pub fn reject(
        &mut self,
        now: Instant,
        connection: ConnectionHandle,
        reason: RejectReason,
        private_data: &[u8],
    ) -> Result<(), ConnectError> {
        let mut view = self.view().ok_or(ConnectError::State)?;
        let slot = incoming(&view, connection)?;
        Ok(connection::reject(&mut view, now, slot, reason, private_data)?)
    }

    /// Closes a connection; [`Event::Closed`](crate::Event) follows.
    ///
    /// # Errors
    /// [`ConnectError::State`] if there is no such connection.
    pub fn close(
        &mut self,
        now: Instant,
        connection: ConnectionHandle,
        mode: CloseMode,
    ) -> Result<(), ConnectError> {
        let mut view = self.view().ok_or(ConnectError::State)?;
        let slot = find(&view, connection).ok_or(ConnectError::State)?;
        connection::begin_close(&mut view, now, slot, mode == CloseMode::Flush);
        Ok(())
    }

    /// The peer's private data, at most 256 bytes: of its CONNECT, until accepted; of its ACCEPT or REJECT.
    pub fn private_data(&mut self, connection: ConnectionHandle) -> Option<&[u8]> {
        let view = self.view()?;
        let slot = find_any(&view, connection)?;
        // The borrow of the view ends here; the table itself is borrowed anew.
        let raw = slot.raw() as usize;
        let tables = self.storage.tables();
        tables.connections.get(raw).map(|slot| slot.value().private.as_slice())
    }

    /// Counters and estimates of a connection.
    pub fn connection_stats(&mut self, connection: ConnectionHandle) -> Option<ConnectionStats> {
        let view = self.view()?;
        let owner = view.connections.at(find_any(&view, connection)?);
        let bytes_in_flight = owner.path_indices().map(|at| view.paths.at(at).sending.inflight_bytes).sum();
        Some(ConnectionStats {
            bytes_in_flight,
            state: owner.state.name(),
            streams: owner.streams.count,
            paths: owner.paths.count,
            ..owner.stats
        })
    }

    /// Counters and estimates of a path; `None` past the last one.
    pub fn path_stats(&mut self, connection: ConnectionHandle, path: PathId) -> Option<PathStats> {
        let view = self.view()?;
        let owner = view.connections.at(find_any(&view, connection)?);
        let path = view.paths.at(owner.path(path)?);
        let share_kbps = owner.outflows.told_kbps(path.plane);
        //= MR-PATH-38
        Some(PathStats {
            path: path.id,
            plane: path.plane,
            epoch: path.epoch,
            state: path.state,
            source_port: path.source_port,
            rtt_ns_base: path.rtt.base_ns(),
            rtt_ns_smoothed: path.rtt.smoothed_or(0),
            rtt_ns_latest: path.rtt.latest_ns(),
            share_kbps: u32::try_from(share_kbps).unwrap_or(u32::MAX),
            marked_fraction: path.recent.marked,
            lost_fraction: path.recent.lost,
            window_bytes: path.window.window_bytes,
            inflight_bytes: path.sending.inflight_bytes,
            mtu_bytes: path.probing.mtu_bytes,
            packets_sent: path.counters.sent,
            packets_delivered: path.counters.delivered,
            packets_lost: path.counters.lost,
            packets_marked: path.counters.marked,
            timeouts: path.counters.timeouts,
            repaths: path.counters.repaths,
        })
    }

    /// What a connection knows of one of its planes; `None` past the last one. O(paths of the plane).
    pub fn plane_stats(&mut self, connection: ConnectionHandle, plane: u8) -> Option<PlaneStats> {
        let view = self.view()?;
        connection::plane_stats(&view, find_any(&view, connection)?, plane)
    }

    /// Counters of a stream; `None` if the connection has none of this id.
    pub fn stream_stats(&mut self, connection: ConnectionHandle, stream: StreamId) -> Option<StreamStats> {
        let view = self.view()?;
        let at = stream::find(&view, find_any(&view, connection)?, stream)?;
        Some(view.streams.at(at).stats())
    }

    /// Moves a path to a new source port.
    ///
    /// # Errors
    /// [`ConnectError::State`] if there is no such connection or path.
    pub fn repath(&mut self, connection: ConnectionHandle, path: PathId) -> Result<(), ConnectError> {
        let mut view = self.view().ok_or(ConnectError::State)?;
        let slot = find(&view, connection).ok_or(ConnectError::State)?;
        let at = view.connections.at(slot).path(path).ok_or(ConnectError::State)?;
        connection::repath(&mut view, slot, at);
        Ok(())
    }

    /// An id that no stream of the connection has: even on the side that connected, odd on the other. The stream
    /// comes to be when it is first used.
    ///
    /// # Errors
    /// [`PostError::NoConnection`]; [`PostError::NoStream`] if all ids are taken.
    pub fn open_stream(&mut self, connection: ConnectionHandle) -> Result<StreamId, PostError> {
        let mut view = self.view().ok_or(PostError::NoConnection)?;
        let slot = find(&view, connection).ok_or(PostError::NoConnection)?;
        let limit = view.streams.capacity().saturating_add(1);
        for _ in 0..limit {
            let owner = view.connections.at_mut(slot);
            let id =
                //= MR-STR-2
                StreamId(owner.streams.next_id.wrapping_mul(2) | u16::from(owner.role == Role::Acceptor));
            owner.streams.next_id = owner.streams.next_id.wrapping_add(1);
            if id != StreamId::NONE && stream::find(&view, slot, id).is_none() {
                return Ok(id);
            }
        }
        Err(PostError::NoStream)
    }

    /// Ends a stream: what is not complete completes as flushed, here and at the peer. Messages that are to arrive
    /// must have completed before. The id may be used again after both sides have said so.
    ///
    /// # Errors
    /// [`PostError::NoConnection`], [`PostError::NoStream`].
    pub fn reset_stream(
        &mut self,
        now: Instant,
        connection: ConnectionHandle,
        stream: StreamId,
    ) -> Result<(), PostError> {
        let mut view = self.view().ok_or(PostError::NoConnection)?;
        let slot = find(&view, connection).ok_or(PostError::NoConnection)?;
        let at = stream::find(&view, slot, stream).ok_or(PostError::NoStream)?;
        stream::end_stream(&mut view, now, at, Status::Flushed);
        Ok(())
    }

    /// Posts a work request; its completion follows as an event, in the order of the stream. O(segments): about 1,700
    /// instructions with four.
    ///
    /// # Errors
    /// [`PostError`]; nothing was queued then.
    pub fn post(
        &mut self,
        now: Instant,
        connection: ConnectionHandle,
        stream: StreamId,
        request: WorkRequest<'_>,
    ) -> Result<(), PostError> {
        let mut view = self.view().ok_or(PostError::NoConnection)?;
        let slot = find(&view, connection).ok_or(PostError::NoConnection)?;
        stream::post(&mut view, now, slot, stream, &request)
    }

    /// Posts a receive of up to four segments; SENDs and WRITEs with immediate of the stream consume them in order.
    ///
    /// # Errors
    /// [`PostError`]; nothing was queued then.
    pub fn post_recv(
        &mut self,
        connection: ConnectionHandle,
        stream: StreamId,
        id: u64,
        segments: &[Segment],
    ) -> Result<(), PostError> {
        let mut view = self.view().ok_or(PostError::NoConnection)?;
        let slot = find(&view, connection).ok_or(PostError::NoConnection)?;
        stream::post_recv(&mut view, slot, stream, id, segments, None)
    }

    /// Posts a tagged receive: the first posted one that a tagged SEND matches takes it. Single use.
    ///
    /// # Errors
    /// [`PostError`]; nothing was queued then.
    pub fn post_tagged_recv(
        &mut self,
        connection: ConnectionHandle,
        stream: StreamId,
        id: u64,
        entry: TagEntry,
        segments: &[Segment],
    ) -> Result<(), PostError> {
        let mut view = self.view().ok_or(PostError::NoConnection)?;
        let slot = find(&view, connection).ok_or(PostError::NoConnection)?;
        stream::post_recv(&mut view, slot, stream, id, segments, Some(entry))
    }

    /// Sets what a stream draws on, and opens it. To be called before its first receive.
    ///
    /// # Errors
    /// [`PostError::NoConnection`], [`PostError::NoStream`], [`PostError::NoQueue`].
    pub fn configure_stream(
        &mut self,
        connection: ConnectionHandle,
        stream: StreamId,
        options: StreamOptions,
    ) -> Result<(), PostError> {
        let mut view = self.view().ok_or(PostError::NoConnection)?;
        let slot = find(&view, connection).ok_or(PostError::NoConnection)?;
        let at = stream::find_or_open(&mut view, slot, stream).ok_or(PostError::NoStream)?;
        if let Some(queue) = options.shared_queue {
            stream::attach(&mut view, at, queue)?;
        }
        view.streams.at_mut(at).responder.unordered_match = options.unordered_match;
        Ok(())
    }

    /// Posts an unreliable datagram; it completes when it is sent.
    ///
    /// # Errors
    /// [`PostError`]; nothing was queued then.
    pub fn post_datagram(
        &mut self,
        connection: ConnectionHandle,
        request: DatagramRequest<'_>,
    ) -> Result<(), PostError> {
        let mut view = self.view().ok_or(PostError::NoConnection)?;
        let slot = find(&view, connection).ok_or(PostError::NoConnection)?;
        stream::post_datagram(&mut view, slot, &request)
    }

    /// Makes a queue of receives, for streams to share or for datagrams.
    ///
    /// # Errors
    /// [`PostError::Full`]; [`PostError::NoQueue`] if its number is taken.
    pub fn create_queue(&mut self, options: QueueOptions) -> Result<QueueId, PostError> {
        stream::create_queue(&mut self.view().ok_or(PostError::Full)?, options)
    }

    /// Ends a queue; its receives complete as flushed.
    ///
    /// # Errors
    /// [`PostError::NoQueue`] if there is no such queue, or streams still draw on it.
    pub fn destroy_queue(&mut self, queue: QueueId) -> Result<(), PostError> {
        stream::destroy_queue(&mut self.view().ok_or(PostError::NoQueue)?, queue)
    }

    /// Posts a receive to a queue.
    ///
    /// # Errors
    /// [`PostError`]; nothing was queued then.
    pub fn post_queue_recv(
        &mut self,
        queue: QueueId,
        id: u64,
        segments: &[Segment],
    ) -> Result<(), PostError> {
        stream::post_queue(&mut self.view().ok_or(PostError::NoQueue)?, queue, id, segments)
    }
}

/// The live connection that a handle names.
pub(super) fn find(view: &View<'_>, handle: ConnectionHandle) -> Option<Idx<Connection>> {
    find_any(view, handle).filter(|&slot| {
        !matches!(view.connections.at(slot).state, State::Ending { .. } | State::Resting { .. })
    })
}

/// The connection that a handle names, also one that is over.
fn find_any(view: &View<'_>, handle: ConnectionHandle) -> Option<Idx<Connection>> {
    let slot = Idx::new(handle.slot);
    view.connections.get(slot).filter(|owner| owner.generation == handle.generation).map(|_| slot)
}

fn incoming(view: &View<'_>, handle: ConnectionHandle) -> Result<Idx<Connection>, ConnectError> {
    find(view, handle)
        .filter(|&slot| view.connections.at(slot).state == State::Incoming)
        .ok_or(ConnectError::State)
}

impl From<OpenError> for ConnectError {
    fn from(error: OpenError) -> Self {
        match error {
            OpenError::Full => Self::Full,
            OpenError::PrivateData => Self::PrivateData,
        }
    }
}
