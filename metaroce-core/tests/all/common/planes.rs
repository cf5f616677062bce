//! Pairs of hosts with several planes.
#![allow(dead_code, reason = "each test file uses its own part")]

use metaroce_conformance::{Faults, further_planes};
use metaroce_core::{Config, Limits, PathId, PathState, PathStats, PlaneState};

use super::SECOND;
use super::pair::Pair;

/// Tables for 64 paths.
pub const LIMITS: Limits = Limits { paths_per_connection: 64, ..Limits::HOST };

/// Two hosts with `planes` planes and `paths` paths on each; `change` sees the host's number and its configuration.
pub fn pair(seed: u64, planes: u8, paths: u8, change: impl Fn(u64, &mut Config)) -> Pair {
    Pair::with(seed, Faults::NONE, &LIMITS, |number, config| {
        config.planes = further_planes(u8::try_from(number).unwrap(), planes);
        config.paths_per_plane = paths;
        change(number, config);
    })
}

/// Runs until every plane is up at both ends.
pub fn wait_up(pair: &mut Pair) {
    let connection = pair.connection;
    let done = pair.net.run_until(SECOND, |net| {
        let mut up = true;
        for (host, connection) in net.hosts.iter_mut().zip(connection) {
            let planes = (0..=u8::MAX).map_while(|plane| host.endpoint.plane_stats(connection, plane));
            up &= planes.into_iter().all(|plane| plane.state == PlaneState::Up);
        }
        up
    });
    assert!(done, "all planes come up");
}

pub fn paths(pair: &mut Pair, host: usize) -> Vec<PathStats> {
    let connection = pair.connection[host];
    let endpoint = &mut pair.net.hosts[host].endpoint;
    (0..=u8::MAX).map_while(|id| endpoint.path_stats(connection, PathId(id))).collect()
}

pub fn good(paths: &[PathStats], plane: u8) -> usize {
    paths.iter().filter(|path| path.plane == plane && path.state == PathState::Good).count()
}
