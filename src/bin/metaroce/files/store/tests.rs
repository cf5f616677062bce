use super::*;

fn served() -> (tempfile::TempDir, Store) {
    let root = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(root.path().join("served/sub")).unwrap();
    std::fs::write(root.path().join("secret"), b"secret").unwrap();
    std::fs::write(root.path().join("served/plain"), b"plain").unwrap();
    let store = Store::open(&root.path().join("served"), false).unwrap();
    (root, store)
}

fn names(path: &Path) -> Vec<String> {
    let mut names: Vec<_> = std::fs::read_dir(path)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

fn hash(bytes: &[u8]) -> Hash {
    *blake3::hash(bytes).as_bytes()
}

#[test]
fn a_verified_file_appears_under_its_name_and_replaces_an_older_one() {
    let (root, store) = served();
    for content in [b"first".as_slice(), b"second, longer"] {
        let mut incoming = store.create("sub/new", content.len() as u64).unwrap();
        assert_ne!(names(&root.path().join("served/sub")), ["new"], "a temporary name is used");
        incoming.write(content).unwrap();
        incoming.finish(&hash(content)).unwrap();
        assert_eq!(names(&root.path().join("served/sub")), ["new"]);
        assert_eq!(std::fs::read(root.path().join("served/sub/new")).unwrap(), content);
    }
}

#[test]
fn a_damaged_short_or_abandoned_file_leaves_nothing() {
    let (root, store) = served();
    let mut damaged = store.create("sub/new", 3).unwrap();
    damaged.write(b"abc").unwrap();
    assert_eq!(damaged.finish(&hash(b"abd")).unwrap_err().failure, Failure::Damaged);
    let mut short = store.create("sub/new", 3).unwrap();
    short.write(b"ab").unwrap();
    assert_eq!(short.finish(&hash(b"ab")).unwrap_err().failure, Failure::Damaged);
    let mut long = store.create("sub/new", 3).unwrap();
    assert_eq!(long.write(b"abcd").unwrap_err().failure, Failure::Protocol);
    drop(long);
    drop(store.create("sub/new", 3).unwrap());
    assert_eq!(names(&root.path().join("served/sub")), [""; 0]);
}

#[test]
fn names_that_lead_outside_are_refused() {
    let (root, store) = served();
    for name in ["../secret", "/etc/passwd", "sub/../../secret"] {
        assert_eq!(store.read(name).unwrap_err().failure, Failure::Outside, "{name}");
    }
    for name in ["../new", "/tmp/new", "sub/../../new"] {
        assert_eq!(store.create(name, 1).unwrap_err().failure, Failure::Outside, "{name}");
    }
    assert_eq!(names(root.path()), ["secret", "served"]);
}

#[cfg(unix)]
#[test]
fn symbolic_links_that_lead_outside_are_refused_and_those_within_work() {
    let (root, store) = served();
    let served = root.path().join("served");
    std::os::unix::fs::symlink("../secret", served.join("relative")).unwrap();
    std::os::unix::fs::symlink(root.path().join("secret"), served.join("absolute")).unwrap();
    std::os::unix::fs::symlink(root.path(), served.join("up")).unwrap();
    std::os::unix::fs::symlink("plain", served.join("inner")).unwrap();
    for name in ["relative", "absolute", "up/secret"] {
        assert_eq!(store.read(name).unwrap_err().failure, Failure::Outside, "{name}");
    }
    assert_eq!(store.create("up/new", 1).unwrap_err().failure, Failure::Outside);
    assert_eq!(store.read("inner").unwrap().1, 5);

    let mut incoming = store.create("relative", 3).unwrap();
    incoming.write(b"new").unwrap();
    incoming.finish(&hash(b"new")).unwrap();
    assert_eq!(
        std::fs::read(root.path().join("secret")).unwrap(),
        b"secret",
        "the link is replaced, not followed"
    );
    assert_eq!(std::fs::read(served.join("relative")).unwrap(), b"new");
}

#[test]
fn what_is_no_file_is_refused_by_kind() {
    let (_root, store) = served();
    assert_eq!(store.read("missing").unwrap_err().failure, Failure::NotFound);
    assert_eq!(store.read("sub").unwrap_err().failure, Failure::NoFile);
    assert_eq!(store.read("").unwrap_err().failure, Failure::NoFile);
    assert_eq!(store.read("a\0b").unwrap_err().failure, Failure::NoFile);
    assert_eq!(store.create("sub", 1).unwrap_err().failure, Failure::NoFile);
    assert_eq!(store.create("none/new", 1).unwrap_err().failure, Failure::NotFound);
    assert_eq!(store.create("..", 1).unwrap_err().failure, Failure::NoFile);
}

#[test]
fn a_read_only_store_takes_nothing() {
    let (root, _) = served();
    let store = Store::open(&root.path().join("served"), true).unwrap();
    assert_eq!(store.create("new", 1).unwrap_err().failure, Failure::ReadOnly);
    assert_eq!(store.read("plain").unwrap().1, 5);
}

#[test]
fn a_missing_directory_is_named_in_the_error() {
    let error = Store::open(Path::new("/nonexistent/dir"), false).unwrap_err();
    assert_eq!(error.failure, Failure::NotFound);
    assert!(error.text.contains("/nonexistent/dir"));
}
