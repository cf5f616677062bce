//! Captures in the format pcapng.

use std::borrow::Cow;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::time::Duration;

use metaroce_core::Ecn;
use pcap_file::pcapng::PcapNgWriter;
use pcap_file::pcapng::blocks::enhanced_packet::{EnhancedPacketBlock, EnhancedPacketOption};
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption,
};
use pcap_file::{DataLink, PcapError};

use super::{Observer, Record, frame_datagram};

/// The comment of a packet that the link lost.
const LOST: &str = "lost";

/// Units of time stamps: 10⁻⁹ s.
const NANOSECONDS: u8 = 9;

/// Writes datagrams as a pcapng capture of IP packets (`LINKTYPE_RAW`), with time stamps in nanoseconds.
///
/// `output` gets a few small writes per packet: give it a [`BufWriter`](std::io::BufWriter). As an [`Observer`] it
/// keeps the first error for [`finish`](Self::finish) and writes nothing more.
pub struct PcapWriter<W: Write> {
    writer: PcapNgWriter<W>,
    packet: Vec<u8>,
    failed: Option<io::Error>,
}

impl<W: Write> PcapWriter<W> {
    /// Starts a capture: writes the headers of the file.
    ///
    /// # Errors
    /// Those of `output`.
    pub fn new(output: W) -> io::Result<Self> {
        let mut writer = PcapNgWriter::new(output).map_err(to_io)?;
        let options = vec![
            InterfaceDescriptionOption::IfName(Cow::Borrowed("metaroce")),
            InterfaceDescriptionOption::IfTsResol(NANOSECONDS),
        ];
        let interface = InterfaceDescriptionBlock { linktype: DataLink::RAW, snaplen: 0, options };
        writer.write_pcapng_block(interface).map_err(to_io)?;
        Ok(Self { writer, packet: Vec::new(), failed: None })
    }

    /// Adds a datagram: `time_ns` since 1970 (or any other start), addresses and ports, ECN field, UDP payload.
    ///
    /// # Errors
    /// Those of the output; [`io::ErrorKind::InvalidInput`] if `bytes` don't fit into one UDP packet, and then
    /// nothing was written.
    pub fn write(
        &mut self,
        time_ns: u64,
        source: SocketAddr,
        destination: SocketAddr,
        ecn: Ecn,
        bytes: &[u8],
    ) -> io::Result<()> {
        self.write_block(time_ns, [source, destination], ecn, bytes, None)
    }

    /// As [`write`](Self::write), with a comment on the packet, at most 65,535 bytes of it.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn write_commented(
        &mut self,
        time_ns: u64,
        source: SocketAddr,
        destination: SocketAddr,
        ecn: Ecn,
        bytes: &[u8],
        comment: &str,
    ) -> io::Result<()> {
        let end = comment.floor_char_boundary(usize::from(u16::MAX));
        self.write_block(time_ns, [source, destination], ecn, bytes, comment.get(..end))
    }

    /// Pushes what is buffered to its destination, so that a reader of the file sees every packet so far.
    ///
    /// # Errors
    /// Those of the output.
    pub fn flush(&mut self) -> io::Result<()> {
        self.writer.get_mut().flush()
    }

    /// Ends the capture and gives the output back, flushed.
    ///
    /// # Errors
    /// The first one that it met as an [`Observer`], or that of the last flush.
    pub fn finish(mut self) -> io::Result<W> {
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        self.flush()?;
        Ok(self.writer.into_inner())
    }

    fn write_block(
        &mut self,
        time_ns: u64,
        [source, destination]: [SocketAddr; 2],
        ecn: Ecn,
        bytes: &[u8],
        comment: Option<&str>,
    ) -> io::Result<()> {
        frame_datagram(&mut self.packet, source, destination, ecn, bytes)?;
        let options = comment.map(|text| EnhancedPacketOption::Comment(Cow::Borrowed(text)));
        let block = EnhancedPacketBlock {
            interface_id: 0,
            timestamp: Duration::from_nanos(time_ns),
            original_len: u32::try_from(self.packet.len()).unwrap_or(u32::MAX),
            data: Cow::Borrowed(&self.packet),
            options: options.into_iter().collect(),
        };
        self.writer.write_pcapng_block(block).map_err(to_io)?;
        Ok(())
    }
}

impl<W: Write> Observer for PcapWriter<W> {
    fn on_datagram(&mut self, record: &Record<'_>) {
        if self.failed.is_some() {
            return;
        }
        let Record { time_ns, source, destination, ecn, bytes, lost, .. } = *record;
        let comment = lost.then_some(LOST);
        self.failed = self.write_block(time_ns, [source, destination], ecn, bytes, comment).err();
    }
}

impl<W: Write> std::fmt::Debug for PcapWriter<W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PcapWriter").field("failed", &self.failed).finish_non_exhaustive()
    }
}

fn to_io(error: PcapError) -> io::Error {
    match error {
        PcapError::IoError(error) => error,
        other => io::Error::other(other),
    }
}

#[cfg(test)]
mod tests {
    use pcap_file::pcapng::{Block, PcapNgReader};

    use super::*;

    struct Full;

    impl Write for Full {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if bytes.len() < 100 { Ok(bytes.len()) } else { Err(io::ErrorKind::StorageFull.into()) }
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn record(bytes: &[u8], lost: bool) -> Record<'_> {
        Record {
            time_ns: 1_000_000_007,
            from: 0,
            to: Some(1),
            source: "10.0.0.1:49152".parse().unwrap(),
            destination: "10.0.0.2:4795".parse().unwrap(),
            ecn: Ecn::Ect0,
            bytes,
            lost,
        }
    }

    #[test]
    fn capture_reads_back_with_times_lengths_and_comments() {
        let mut writer = PcapWriter::new(Vec::new()).unwrap();
        writer.on_datagram(&record(b"first", false));
        writer.on_datagram(&record(b"second!", true));
        let record = record(b"", false);
        let long = "é".repeat(40_000);
        writer.write_commented(u64::MAX, record.source, record.destination, record.ecn, b"", &long).unwrap();
        let file = writer.finish().unwrap();

        let mut reader = PcapNgReader::new(&file[..]).unwrap();
        let mut packets = Vec::new();
        while let Some(block) = reader.next_block() {
            if let Block::EnhancedPacket(packet) = block.unwrap().into_owned() {
                packets.push(packet);
            }
        }
        let [interface] = reader.interfaces() else { panic!("one interface") };
        assert_eq!(interface.linktype, DataLink::RAW);
        assert!(interface.options.contains(&InterfaceDescriptionOption::IfTsResol(9)));
        let [first, second, third] = &packets[..] else { panic!("three packets") };
        assert_eq!(first.timestamp.as_nanos(), 1_000_000_007);
        assert_eq!((first.original_len, first.data.len()), (33, 33));
        assert!(first.data.ends_with(b"first") && first.options.is_empty());
        assert_eq!(second.options, [EnhancedPacketOption::Comment("lost".into())]);
        assert_eq!(third.timestamp.as_nanos(), u128::from(u64::MAX));
        assert_eq!(third.options, [EnhancedPacketOption::Comment("é".repeat(32_767).into())]);
    }

    #[test]
    fn observer_keeps_the_first_error() {
        let mut writer = PcapWriter::new(Full).unwrap();
        let bytes = [7; 200];
        writer.on_datagram(&record(&bytes, false));
        writer.on_datagram(&record(b"", false));
        assert_eq!(writer.finish().err().map(|error| error.kind()), Some(io::ErrorKind::StorageFull));

        let mut writer = PcapWriter::new(Vec::new()).unwrap();
        writer.on_datagram(&record(&vec![7; 65_508], false));
        assert_eq!(writer.finish().err().map(|error| error.kind()), Some(io::ErrorKind::InvalidInput));
    }
}
