//! Names to addresses, and sockets for them.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs as _, UdpSocket};

use anyhow::{Context as _, bail};
use metaroce::config::PLANES_MAX;
use metaroce::wire::UDP_PORT;

/// The first address of `HOST`, `HOST:PORT` or `[IPV6]:PORT`; the port is 4795 if not given.
///
/// # Errors
/// When the text is no address and no name that resolves.
pub(crate) fn resolve(text: &str) -> anyhow::Result<SocketAddr> {
    let (host, port) = split_port(text)?;
    let found = (host, port).to_socket_addrs();
    let mut found = found.with_context(|| format!("cannot find the host {host:?}"))?;
    found.next().with_context(|| format!("the host {host:?} has no address"))
}

/// The local address from which packets to `remote` leave, with port 0.
///
/// # Errors
/// When there is no route to it.
pub(crate) fn local_towards(remote: SocketAddr) -> anyhow::Result<SocketAddr> {
    let any = match remote {
        SocketAddr::V4(_) => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
        SocketAddr::V6(_) => SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
    };
    // Connecting a UDP socket sends nothing; it only asks the routing table.
    let probe = || -> io::Result<SocketAddr> {
        let socket = UdpSocket::bind(any)?;
        socket.connect(remote)?;
        socket.local_addr()
    };
    let mut local = probe().with_context(|| format!("there is no route to {remote}"))?;
    local.set_port(0);
    Ok(local)
}

/// Addresses of this host on further planes, as `IP`, `IP:PORT` or `[IPV6]:PORT`; the port is `port` if not given.
///
/// # Errors
/// When a text is no address, or there are more than 7.
pub(crate) fn planes(texts: &[String], port: u16) -> anyhow::Result<Vec<SocketAddr>> {
    if texts.len() >= PLANES_MAX {
        bail!("{} planes are too many: at most {PLANES_MAX}, the first included", texts.len() + 1);
    }
    let parse = |text: &String| match text.parse::<IpAddr>() {
        Ok(ip) => Ok(SocketAddr::new(ip, port)),
        Err(_) => text.parse().with_context(|| format!("{text:?} is no address of a plane")),
    };
    texts.iter().map(parse).collect()
}

fn split_port(text: &str) -> anyhow::Result<(&str, u16)> {
    if text.is_empty() {
        bail!("the host is missing");
    }
    if let Some(rest) = text.strip_prefix('[') {
        let (host, rest) = rest.split_once(']').with_context(|| format!("{text:?} lacks a ]"))?;
        return match rest.strip_prefix(':') {
            Some(port) => Ok((host, parse_port(port)?)),
            None if rest.is_empty() => Ok((host, UDP_PORT)),
            None => bail!("{text:?} is no address: write [IPV6]:PORT"),
        };
    }
    if text.parse::<IpAddr>().is_ok() {
        return Ok((text, UDP_PORT));
    }
    match text.rsplit_once(':') {
        Some(("", _)) => bail!("the host is missing in {text:?}"),
        Some((host, port)) => Ok((host, parse_port(port)?)),
        None => Ok((text, UDP_PORT)),
    }
}

fn parse_port(text: &str) -> anyhow::Result<u16> {
    text.parse().with_context(|| format!("{text:?} is no port"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_come_with_or_without_port() {
        assert_eq!(resolve("127.0.0.1").unwrap(), "127.0.0.1:4795".parse().unwrap());
        assert_eq!(resolve("127.0.0.1:99").unwrap(), "127.0.0.1:99".parse().unwrap());
        assert_eq!(resolve("::1").unwrap(), "[::1]:4795".parse().unwrap());
        assert_eq!(resolve("[::1]").unwrap(), "[::1]:4795".parse().unwrap());
        assert_eq!(resolve("[::1]:99").unwrap(), "[::1]:99".parse().unwrap());
    }

    #[test]
    fn what_is_no_address_is_named() {
        for text in ["", ":99", "[::1", "[::1]99", "127.0.0.1:", "127.0.0.1:70000", "a:b:c"] {
            assert!(resolve(text).is_err(), "{text}");
        }
    }

    #[test]
    fn planes_are_addresses_and_few() {
        let parse = |texts: &[&str]| {
            let texts: Vec<_> = texts.iter().map(|text| (*text).to_owned()).collect();
            planes(&texts, 7)
        };
        let expected = ["10.0.0.1:7", "10.0.0.2:8", "[fd00::1]:7", "[fd00::1]:9"];
        let expected: Vec<SocketAddr> = expected.iter().map(|text| text.parse().unwrap()).collect();
        assert_eq!(parse(&["10.0.0.1", "10.0.0.2:8", "fd00::1", "[fd00::1]:9"]).unwrap(), expected);
        assert!(parse(&["host"]).is_err());
        assert!(parse(&["10.0.0.1"; 7]).is_ok());
        assert!(parse(&["10.0.0.1"; 8]).is_err());
    }

    #[test]
    fn the_local_address_towards_loopback_is_loopback() {
        let local = local_towards("127.0.0.1:4795".parse().unwrap()).unwrap();
        assert_eq!(local, "127.0.0.1:0".parse().unwrap());
    }
}
