//! Regions, connections and work requests of a driver: thin covers over the endpoint's calls that add the time and the
//! memory.

use metaroce_core::config::ConnectOptions;
use metaroce_core::ids::{ConnectionHandle, ProtectionDomain, StreamId};
use metaroce_core::memory::MemoryError;
use metaroce_core::region::Access;
use metaroce_core::request::{PostError, Segment, WorkRequest};
use metaroce_core::wire::RejectReason;
use metaroce_core::{CloseMode, ConnectError, RegionError, RegionOptions};

use super::HostDriver;
use crate::backend::Backend;
use crate::memory::RegionMemory;
use crate::regions::{Region, RegisterError};

impl<B: Backend + ?Sized> HostDriver<B> {
    /// Registers `memory` as a region whose addresses, in a peer's terms, are offsets.
    ///
    /// # Errors
    /// [`RegisterError`]; the memory is then dropped.
    pub fn register_region(
        &mut self,
        memory: RegionMemory,
        access: Access,
        domain: ProtectionDomain,
    ) -> Result<Region, RegisterError> {
        self.register_region_at(memory, 0, access, domain)
    }

    /// Registers `memory` as a region whose first byte has the address `base_address` in a peer's terms.
    ///
    /// # Errors
    /// [`RegisterError`]; the memory is then dropped.
    pub fn register_region_at(
        &mut self,
        memory: RegionMemory,
        base_address: u64,
        access: Access,
        domain: ProtectionDomain,
    ) -> Result<Region, RegisterError> {
        if !memory.is_writable() && WRITING.iter().any(|right| access.allows(*right)) {
            return Err(RegisterError::ReadOnly);
        }
        let length = memory.len() as u64;
        let options = RegionOptions { length, base_address, access, domain };
        let registered = self.host.endpoint.register_region(options).map_err(RegisterError::Endpoint)?;
        self.backend.on_region(registered.id, &memory);
        self.host.regions.insert(registered.id, memory);
        Ok(Region { id: registered.id, key: registered.key, length, base_address, access, domain })
    }

    /// Ends a registration and gives the memory back, once the system has let go of it: a completion-driven backend
    /// waits for that.
    ///
    /// # Errors
    /// [`RegionError::InUse`] while work requests or packets in flight refer to it, [`RegionError::NoRegion`] if it was
    /// deregistered before, or the system does not let go: then the driver keeps the memory until it is dropped.
    pub fn deregister_region(&mut self, region: Region) -> Result<RegionMemory, RegionError> {
        self.host.endpoint.deregister_region(region.id)?;
        let released = self.backend.release_region(region.id, &mut self.host);
        let memory = self.host.regions.remove(region.id).ok_or(RegionError::NoRegion)?;
        if released.is_err() {
            self.host.unreleased.push(memory);
            return Err(RegionError::NoRegion);
        }
        Ok(memory)
    }

    /// Copies the bytes of a region from `offset` on into `out`.
    ///
    /// # Errors
    /// [`MemoryError`] if that passes the end, or the region was deregistered.
    pub fn copy_out(&self, region: Region, offset: u64, out: &mut [u8]) -> Result<(), MemoryError> {
        self.host.regions.memory(region.id).ok_or(MemoryError)?.copy_to(offset, out)
    }

    /// Copies `bytes` into a region at `offset`. Do not change what a work request under way is sending: a packet sent
    /// again would carry other bytes than the first time.
    ///
    /// # Errors
    /// [`MemoryError`] if that passes the end, the memory is mapped for reading only, or the region was deregistered.
    pub fn copy_in(&mut self, region: Region, offset: u64, bytes: &[u8]) -> Result<(), MemoryError> {
        self.host.regions.memory_mut(region.id).ok_or(MemoryError)?.copy_from(offset, bytes)
    }

    /// The memory of a region.
    #[must_use]
    pub fn memory(&self, region: Region) -> Option<&RegionMemory> {
        self.host.regions.memory(region.id)
    }

    /// Starts to connect; [`Event::Connected`](metaroce_core::event::Event::Connected) or
    /// [`Event::Closed`](metaroce_core::event::Event::Closed) tells the outcome.
    ///
    /// # Errors
    /// [`ConnectError`]; nothing was sent.
    pub fn connect(&mut self, options: ConnectOptions<'_>) -> Result<ConnectionHandle, ConnectError> {
        let now = self.now();
        self.host.endpoint.connect(now, options)
    }

    /// Accepts an incoming connection, which may reach the regions of `domain`.
    ///
    /// # Errors
    /// [`ConnectError`]; nothing was sent.
    pub fn accept(
        &mut self,
        connection: ConnectionHandle,
        domain: ProtectionDomain,
        private_data: &[u8],
    ) -> Result<(), ConnectError> {
        let now = self.now();
        self.host.endpoint.accept(now, connection, domain, private_data)
    }

    /// Refuses an incoming connection.
    ///
    /// # Errors
    /// [`ConnectError`]; nothing was sent.
    pub fn reject(
        &mut self,
        connection: ConnectionHandle,
        reason: RejectReason,
        private_data: &[u8],
    ) -> Result<(), ConnectError> {
        let now = self.now();
        self.host.endpoint.reject(now, connection, reason, private_data)
    }

    /// Starts to close a connection; [`Event::Closed`](metaroce_core::event::Event::Closed) tells when it is done.
    ///
    /// # Errors
    /// [`ConnectError::State`] if it is closing or gone.
    pub fn close(&mut self, connection: ConnectionHandle, mode: CloseMode) -> Result<(), ConnectError> {
        let now = self.now();
        self.host.endpoint.close(now, connection, mode)
    }

    /// Opens a stream.
    ///
    /// # Errors
    /// [`PostError`].
    pub fn open_stream(&mut self, connection: ConnectionHandle) -> Result<StreamId, PostError> {
        self.host.endpoint.open_stream(connection)
    }

    /// Posts a work request; a completion tells its end.
    ///
    /// # Errors
    /// [`PostError`]; nothing was queued.
    pub fn post(
        &mut self,
        connection: ConnectionHandle,
        stream: StreamId,
        request: WorkRequest<'_>,
    ) -> Result<(), PostError> {
        let now = self.now();
        self.host.endpoint.post(now, connection, stream, request)
    }

    /// Posts a receive; a completion tells its end.
    ///
    /// # Errors
    /// [`PostError`]; nothing was queued.
    pub fn post_recv(
        &mut self,
        connection: ConnectionHandle,
        stream: StreamId,
        id: u64,
        segments: &[Segment],
    ) -> Result<(), PostError> {
        self.host.endpoint.post_recv(connection, stream, id, segments)
    }
}

/// The rights that let somebody write.
const WRITING: [Access; 3] = [Access::LOCAL_WRITE, Access::REMOTE_WRITE, Access::REMOTE_ATOMIC];
