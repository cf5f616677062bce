//! `--pcap FILE`: every datagram of this process, written as a capture.

use std::fs::File;
use std::io::BufWriter;
use std::path::Path;
use std::sync::Mutex;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Context as _;
use metaroce_conformance::trace::PcapWriter;

use crate::backend::Driver;

/// The writer, until a driver takes it.
static WRITER: Mutex<Option<PcapWriter<BufWriter<File>>>> = Mutex::new(None);

/// Opens the file; the driver that is made next writes into it.
///
/// # Errors
/// When the file can't be written.
pub(crate) fn open(path: &Path) -> anyhow::Result<()> {
    let describe = || format!("cannot write the capture {}", path.display());
    let file = File::create(path).with_context(describe)?;
    let writer = PcapWriter::new(BufWriter::new(file)).with_context(describe)?;
    *WRITER.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(writer);
    Ok(())
}

/// Has `driver` write the capture, if one is asked for and no other driver does.
pub(crate) fn attach(driver: &mut Driver) {
    let writer = WRITER.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take();
    let Some(mut writer) = writer else { return };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
    let epoch_ns = u64::try_from(now).unwrap_or(0).saturating_sub(driver.now().as_nanos());
    let mut broken = false;
    driver.set_tap(Some(Box::new(move |tapped| {
        let time_ns = epoch_ns.saturating_add(tapped.at.as_nanos());
        let written = writer.write(time_ns, tapped.source, tapped.destination, tapped.ecn, tapped.bytes);
        if let (Err(error), false) = (written, broken) {
            eprintln!("metaroce: the capture ends here: {error}");
            broken = true;
        }
    })));
}
