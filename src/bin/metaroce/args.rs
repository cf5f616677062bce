//! The command line.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::backend::{AttachKind, BackendKind};
use crate::quantity::{parse_fraction, parse_rate, parse_size};

/// RDMA over lossy, multipath Ethernet; without a command it runs `demo`
#[derive(Debug, Parser)]
#[command(name = "metaroce", version, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) output: OutputArgs,

    /// Write every datagram that this process sends or receives into a pcapng file
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) pcap: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) backend: BackendArgs,

    #[command(subcommand)]
    pub(crate) command: Option<Command>,
}

/// What moves the datagrams, and where.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct BackendArgs {
    /// What moves the datagrams
    #[arg(
        long,
        global = true,
        value_enum,
        default_value_t,
        env = "METAROCE_BACKEND",
        hide_env_values = true
    )]
    pub(crate) backend: BackendKind,

    /// With `--backend xdp`: the interface through which everything goes
    #[arg(long, global = true, value_name = "IF")]
    pub(crate) interface: Option<String>,

    /// With `--backend xdp`: the queue of the interface
    #[arg(long, global = true, value_name = "N", default_value_t = 0)]
    pub(crate) queue: u32,

    /// With `--backend xdp`: where the filter is attached
    #[arg(long, global = true, value_enum, default_value_t, value_name = "WHERE")]
    pub(crate) attach: AttachKind,

    /// Rate of the line of each plane, such as 25G or 500M [default: 100G]; data leaves no faster, and peers share it.
    /// Where the line is slower than that, acknowledgements wait in queues below the endpoint
    #[arg(long, global = true, value_name = "BITS", value_parser = parse_rate)]
    pub(crate) rate: Option<u32>,
}

/// What every command takes.
#[derive(Clone, Copy, Debug, Default, Args)]
pub(crate) struct OutputArgs {
    /// Print JSON on standard output instead of text
    #[arg(long, global = true)]
    pub(crate) json: bool,

    /// Show the events of each connection on standard error; twice: also completions
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Write memory from one process into another over loopback with injected loss, and verify it
    Demo(DemoArgs),
    /// Offer a directory to `put` and `get`
    Serve(ServeArgs),
    /// Copy a file to a server
    Put(PutArgs),
    /// Copy a file from a server
    Get(GetArgs),
    /// Show versions, limits and what this machine's sockets can do
    Info,
    /// The receiving process of `demo`
    #[command(hide = true)]
    DemoTarget(DemoTargetArgs),
}

/// `metaroce demo`.
#[derive(Clone, Debug, Args)]
pub(crate) struct DemoArgs {
    /// Bytes to write into the other process
    #[arg(long, default_value = "1GiB", value_parser = parse_size)]
    pub(crate) size: u64,

    #[command(flatten)]
    pub(crate) link: LinkArgs,

    /// Use IPv6 loopback
    #[arg(long)]
    pub(crate) ipv6: bool,
}

/// How the two processes of a demo are joined; the same for both.
#[derive(Clone, Debug, Args)]
pub(crate) struct LinkArgs {
    /// Paths of the connection, each with its own UDP source port
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u8).range(1..=64))]
    pub(crate) paths: u8,

    /// Fraction of datagrams that vanish between core and socket, in each direction
    #[arg(long, default_value = "0.01", value_parser = parse_fraction)]
    pub(crate) loss: f64,

    /// Also reorder datagrams
    #[arg(long)]
    pub(crate) reorder: bool,

    /// Seed of the data and of the injected faults; random if not given
    #[arg(long)]
    pub(crate) seed: Option<u64>,
}

/// `metaroce demo-target`, started by `demo`.
#[derive(Clone, Debug, Args)]
pub(crate) struct DemoTargetArgs {
    /// Bytes of the target region
    #[arg(long, value_parser = parse_size)]
    pub(crate) size: u64,

    #[command(flatten)]
    pub(crate) link: LinkArgs,

    /// Where to listen
    #[arg(long)]
    pub(crate) listen: SocketAddr,
}

/// `metaroce serve`.
#[derive(Clone, Debug, Args)]
pub(crate) struct ServeArgs {
    /// Address and UDP port to listen on (default: all IPv4 addresses, port 4795)
    #[arg(long, default_value = "0.0.0.0:4795", value_name = "ADDR")]
    pub(crate) listen: String,

    /// Serve no files, but be a device under test for `metaroce-conformance check`: take commands at this TCP address.
    /// Whoever reaches it controls this process
    #[arg(long, value_name = "ADDR", conflicts_with_all = ["dir", "read_only", "clients"])]
    pub(crate) control: Option<String>,

    /// Address of this host on a further plane, with the port of --listen unless given; repeat for each plane.
    /// --listen must then be an address too
    #[arg(long = "plane", value_name = "ADDR")]
    pub(crate) planes: Vec<String>,

    /// The directory; nothing outside of it is read or written
    #[arg(long, default_value = ".")]
    pub(crate) dir: PathBuf,

    /// Refuse `put`
    #[arg(long)]
    pub(crate) read_only: bool,

    /// Clients at a time; one more is told that the server is busy
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) clients: u16,
}

/// `metaroce put`.
#[derive(Clone, Debug, Args)]
pub(crate) struct PutArgs {
    /// The file to copy
    pub(crate) file: PathBuf,

    /// The server: HOST, HOST:PORT or [IPV6]:PORT
    pub(crate) host: String,

    /// Name on the server, a path in its directory (default: the file's own name)
    #[arg(long)]
    pub(crate) name: Option<String>,

    #[command(flatten)]
    pub(crate) client: ClientArgs,
}

/// `metaroce get`.
#[derive(Clone, Debug, Args)]
pub(crate) struct GetArgs {
    /// Name on the server, a path in its directory
    pub(crate) name: String,

    /// The server: HOST, HOST:PORT or [IPV6]:PORT
    pub(crate) host: String,

    /// Where to write it (default: the last part of the name, in the current directory)
    #[arg(short, long)]
    pub(crate) output: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) client: ClientArgs,
}

/// What `put` and `get` share.
#[derive(Clone, Debug, Args)]
pub(crate) struct ClientArgs {
    /// Address of this host on a further plane, in the order of the server's; repeat for each plane
    #[arg(long = "plane", value_name = "ADDR")]
    pub(crate) planes: Vec<String>,

    /// Paths of the connection on each plane, each with its own UDP source port
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u8).range(1..=64))]
    pub(crate) paths: u8,
}

impl Default for DemoArgs {
    fn default() -> Self {
        Self { size: 1 << 30, link: LinkArgs::default(), ipv6: false }
    }
}

impl Default for LinkArgs {
    fn default() -> Self {
        Self { paths: 8, loss: 0.01, reorder: false, seed: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_bare_demo_has_the_defaults_of_no_command() {
        let cli = Cli::parse_from(["metaroce", "demo"]);
        let Some(Command::Demo(parsed)) = cli.command else { panic!("no demo") };
        assert_eq!(format!("{parsed:?}"), format!("{:?}", DemoArgs::default()));
    }

    #[test]
    fn output_flags_are_taken_before_and_after_the_command() {
        let cli = Cli::parse_from(["metaroce", "--json", "get", "a", "b", "-vv"]);
        assert!(cli.output.json);
        assert_eq!(cli.output.verbose, 2);
    }
}
