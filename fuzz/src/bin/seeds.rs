//! Writes the seeds of every target to `fuzz/corpus/`, where `cargo fuzz` looks for them.

use std::path::Path;

fn main() -> std::io::Result<()> {
    for (target, _) in metaroce_fuzz::TARGETS {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target);
        std::fs::create_dir_all(&folder)?;
        for (name, bytes) in metaroce_fuzz::seeds::of(target) {
            std::fs::write(folder.join(name), bytes)?;
        }
    }
    Ok(())
}
