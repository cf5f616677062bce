use std::io::{Read, Seek, SeekFrom, Write};

use metaroce_core::crc::{SEED, TableChecksum};

use super::*;

fn temporary_file(bytes: &[u8]) -> File {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let path = std::env::temp_dir().join(format!("metaroce-mio-{}-{number}", std::process::id()));
    let mut file = File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .open(&path)
        .expect("temporary file");
    std::fs::remove_file(&path).expect("unlinked");
    file.write_all(bytes).expect("written");
    file
}

#[test]
fn a_zeroed_buffer_holds_zeros_and_what_is_copied_in() {
    let mut memory = RegionMemory::zeroed(10_000).expect("mapped");
    assert_eq!(memory.base.addr() % 4096, 0, "page-aligned");
    memory.copy_from(9_990, b"0123456789").expect("fits");
    let mut out = [1; 12];
    memory.copy_to(9_988, &mut out).expect("fits");
    assert_eq!(&out, b"\0\x000123456789");
}

#[test]
fn what_passes_the_end_is_refused_even_where_the_sum_wraps() {
    let mut memory = RegionMemory::zeroed(100).expect("mapped");
    for (offset, length) in [(100, 1), (99, 2), (0, 101), (u64::MAX, 1), (u64::MAX - 1, 10)] {
        let mut bytes = vec![0; length];
        assert!(memory.copy_to(offset, &mut bytes).is_err(), "{offset} {length}");
        assert!(memory.copy_from(offset, &bytes).is_err(), "{offset} {length}");
        assert!(memory.raw(offset, length).is_none(), "{offset} {length}");
    }
    assert!(memory.copy_from(100, &[]).is_ok());
    assert!(memory.atomic(96, AtomicOperation::FetchAdd(1)).is_err());
}

#[test]
fn atomics_do_what_the_core_says_they_do() {
    let mut memory = RegionMemory::zeroed(64).expect("mapped");
    let operations = [
        AtomicOperation::FetchAdd(u64::MAX),
        AtomicOperation::FetchAdd(7),
        AtomicOperation::CompareSwap { compare: 6, swap: 0xff00 },
        AtomicOperation::CompareSwap { compare: 6, swap: 1 },
        AtomicOperation::Swap(0x1234),
        AtomicOperation::Min(9),
        AtomicOperation::Max(77),
        AtomicOperation::And(0x0f),
        AtomicOperation::Or(0xf0),
        AtomicOperation::Xor(!0),
    ];
    let mut expected = 0;
    for operation in operations {
        assert_eq!(memory.atomic(8, operation), Ok(expected), "{operation:?}");
        expected = operation.apply(expected);
    }
    let mut word = [0; 8];
    memory.copy_to(8, &mut word).expect("fits");
    assert_eq!(u64::from_ne_bytes(word), expected);
}

#[test]
fn an_atomic_on_a_misaligned_word_is_refused() {
    let mut memory = RegionMemory::zeroed(64).expect("mapped");
    assert!(memory.atomic(4, AtomicOperation::Swap(1)).is_err());
}

#[test]
fn lent_memory_is_written_in_place() {
    let mut owner = vec![0u64; 4];
    let base = ptr::NonNull::new(owner.as_mut_ptr().cast::<u8>()).expect("not null");
    // SAFETY: `owner` outlives `memory`, and is not touched while that lives.
    let mut memory = unsafe { RegionMemory::lent(base, 32) };
    memory.copy_from(8, &7u64.to_ne_bytes()).expect("fits");
    memory.atomic(8, AtomicOperation::FetchAdd(1)).expect("aligned");
    drop(memory);
    assert_eq!(owner, [0, 8, 0, 0]);
}

#[test]
fn a_file_mapped_to_read_gives_its_bytes_and_takes_none() {
    let file = temporary_file(b"one two three");
    let mut memory = RegionMemory::file_read_only(&file, 4, 9).expect("mapped");
    let mut out = [0; 9];
    memory.copy_to(0, &mut out).expect("fits");
    assert_eq!(&out, b"two three");
    assert!(memory.copy_from(0, b"x").is_err());
    assert!(memory.atomic(0, AtomicOperation::Swap(1)).is_err());
    assert!(RegionMemory::file_read_only(&file, 4, 10).is_err(), "past the end of the file");
}

#[test]
fn a_file_mapped_to_write_keeps_what_was_written() {
    let mut file = temporary_file(b"");
    allocate_file(&file, 8192).expect("allocated");
    let mut memory = RegionMemory::file(&file, 0, 8192).expect("mapped");
    memory.copy_from(8000, b"end").expect("fits");
    memory.flush().expect("flushed");
    drop(memory);
    let mut bytes = Vec::new();
    file.seek(SeekFrom::Start(0)).expect("rewound");
    file.read_to_end(&mut bytes).expect("read");
    assert_eq!(bytes.len(), 8192);
    assert_eq!(bytes.get(8000..8003), Some(&b"end"[..]));
}

#[test]
fn a_checksum_over_raw_memory_equals_one_over_a_slice() {
    let bytes: Vec<u8> = (0..20_000u32).map(|i| i.to_le_bytes()[0] ^ i.to_le_bytes()[1]).collect();
    let memory = RegionMemory::copied_from(&bytes).expect("mapped");
    let mut scratch = [0; SCRATCH_BYTES];
    for (offset, length) in [(0, 20_000), (1, 4096), (5, 4097), (19_999, 1), (20_000, 0)] {
        let part = memory.raw(offset as u64, length).expect("inside");
        let expected = TableChecksum.update(SEED, bytes.get(offset..offset + length).expect("inside"));
        assert_eq!(part.checksum(&TableChecksum, SEED, &mut scratch), expected);
        let mut copy = vec![9];
        part.append_to(&mut copy);
        assert_eq!(copy.get(1..), bytes.get(offset..offset + length));
    }
}

#[test]
fn an_empty_memory_can_be_registered_and_has_no_bytes() {
    let mut memory = RegionMemory::zeroed(0).expect("nothing to map");
    assert!(memory.is_empty());
    assert!(memory.copy_from(0, &[]).is_ok());
    assert!(memory.copy_from(0, &[1]).is_err());
    assert_eq!(memory.raw(0, 0).map(|part| part.len()), Some(0));
}

/// What a backend writes there must not be seen in the region, and a region must not lose bytes to it.
#[cfg(target_os = "linux")]
#[test]
fn a_large_region_has_an_apron_behind_its_last_byte() {
    for length in [1 << 20, (1 << 20) + 1, 4 << 20, (6 << 20) - 7] {
        let memory = RegionMemory::copied_from(&vec![7; length]).expect("mapped");
        let mapping = memory.mapping().expect("with an apron");
        let start = mapping.apron().addr() - mapping.base().addr();
        assert!(start >= length && start + APRON_BYTES == mapping.bytes(), "{mapping:?}");
        assert_eq!(mapping.apron().addr() % 4096, 0);
        // SAFETY: the apron is mapped, that long, and nobody else's.
        unsafe { ptr::write_bytes(mapping.apron(), 9, APRON_BYTES) };
        let mut out = vec![0; length];
        memory.copy_to(0, &mut out).expect("fits");
        assert!(out.iter().all(|byte| *byte == 7));
        assert!(memory.raw(1, length).is_none(), "the apron is not of the region");
    }
    assert_eq!(RegionMemory::zeroed((1 << 20) - 1).expect("mapped").mapping(), None, "too small");
    let file = temporary_file(&[1; 8192]);
    assert_eq!(RegionMemory::file_read_only(&file, 0, 8192).expect("mapped").mapping(), None);
}
