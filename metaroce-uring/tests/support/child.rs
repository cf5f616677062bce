//! Tests under limits: in a process of their own, or on a thread that the kernel refuses a call.

use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

/// What the process may have.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub locked_bytes: Option<u64>,
    pub open_files: Option<u64>,
    /// Without privileges, if there are any.
    pub ordinary_user: bool,
}

/// Runs `body` in a process of its own, which is this test alone in this program again.
pub fn run(test: &str, limits: Limits, body: impl FnOnce()) {
    if std::env::var_os(INSIDE).is_some() {
        return body();
    }
    let program = std::env::current_exe().expect("the path of this program");
    let mut command = Command::new(program);
    command.args(["--exact", test, "--nocapture"]).env(INSIDE, "1");
    // SAFETY: between fork and exec only system calls are made.
    unsafe { command.pre_exec(move || apply(limits)) };
    match command.output() {
        Ok(output) => {
            let text =
                [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
            assert!(output.status.success(), "{}", text.concat());
        }
        Err(error) => super::suite::skip(test, &format!("no process with these limits: {error}")),
    }
}

/// Has the kernel answer a call of this thread with an error from now on, if its second argument is `second` or any.
pub fn refuse_call(call: libc::c_long, second: Option<u32>, errno: i32) {
    let call = u32::try_from(call).expect("small");
    let errno = u32::try_from(errno).expect("positive");
    let statement = |code: u32, k: u32| libc::sock_filter { code: low(code), jt: 0, jf: 0, k };
    let unless_equal = |k: u32, skip: u8| libc::sock_filter {
        code: low(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K),
        jt: 0,
        jf: skip,
        k,
    };
    let load = |offset| statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, offset);
    let give = |k| statement(libc::BPF_RET | libc::BPF_K, k);
    let refuse = give(libc::SECCOMP_RET_ERRNO | errno);
    let allow = give(libc::SECCOMP_RET_ALLOW);
    let mut filter = match second {
        None => vec![load(NUMBER_OFFSET), unless_equal(call, 1), refuse, allow],
        Some(value) => vec![
            load(NUMBER_OFFSET),
            unless_equal(call, 3),
            load(SECOND_OFFSET),
            unless_equal(value, 1),
            refuse,
            allow,
        ],
    };
    let length = u16::try_from(filter.len()).expect("short");
    let program = libc::sock_fprog { len: length, filter: filter.as_mut_ptr() };
    // SAFETY: the program is alive during the call and has the length that is given; both calls are about this thread.
    let outcome = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program)
    };
    assert_eq!(outcome, 0, "{}", io::Error::last_os_error());
}

fn apply(limits: Limits) -> io::Result<()> {
    let limit = |kind, value: Option<u64>| {
        let Some(value) = value else { return Ok(()) };
        let limit = libc::rlimit { rlim_cur: value, rlim_max: value };
        // SAFETY: the limit is alive during the call.
        check(unsafe { libc::setrlimit(kind, &raw const limit) })
    };
    limit(libc::RLIMIT_MEMLOCK, limits.locked_bytes)?;
    limit(libc::RLIMIT_NOFILE, limits.open_files)?;
    // SAFETY: these calls take no pointer but an empty list.
    unsafe {
        if limits.ordinary_user && libc::geteuid() == 0 {
            check(libc::setgroups(0, std::ptr::null()))?;
            check(libc::setgid(NOBODY))?;
            check(libc::setuid(NOBODY))?;
        }
    }
    Ok(())
}

fn check(outcome: libc::c_int) -> io::Result<()> {
    if outcome < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn low(code: u32) -> u16 {
    u16::try_from(code).expect("small")
}

const INSIDE: &str = "METAROCE_TEST_CHILD";
const NOBODY: libc::uid_t = 65_534;

/// Where the number of a call and the low half of its second argument are in `struct seccomp_data`.
const NUMBER_OFFSET: u32 = 0;
const SECOND_OFFSET: u32 = if cfg!(target_endian = "little") { 24 } else { 28 };
