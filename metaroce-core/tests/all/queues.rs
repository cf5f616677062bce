//! Shared receive queues when a stream that draws on one ends.

use crate::common::*;
use metaroce_conformance::Faults;
use metaroce_core::{
    CompletionKind, Operation, PostError, QueueOptions, RemoteAddress, Segment, StreamOptions, WorkRequest,
};

/// A WRITE with immediate had taken a receive, and then its stream was reset: to the next stream that drew it from the
/// queue it was still the WRITE's. Found by the model, seed 2750.
#[test]
fn a_receive_that_returns_to_its_queue_is_no_message_s() {
    let mut net = network(1, Faults::NONE);
    let [connection, peer] = connect(&mut net);
    let to = net.hosts[1].register(vec![0; 64]);
    let queue = net.hosts[1].endpoint.create_queue(QueueOptions::default()).unwrap();
    let streams = [0, 1].map(|_| net.hosts[0].endpoint.open_stream(connection).unwrap());
    for stream in streams {
        let options = StreamOptions { shared_queue: Some(queue), ..StreamOptions::default() };
        net.hosts[1].endpoint.configure_stream(peer, stream, options).unwrap();
    }
    net.hosts[1]
        .endpoint
        .post_queue_recv(queue, 7, &[Segment { region: to.id, offset: 0, length: 8 }])
        .unwrap();
    // The first message of the first stream never comes, the second one waits for it with its receive.
    net.filter = Some(Box::new(|from, transmit| {
        from == 0 && transmit.header().first() == Some(&1) && transmit.header()[28..32] == [0; 4]
    }));
    let remote = RemoteAddress { key: to.key, address: 8 };
    for (id, immediate) in [(0, None), (1, Some(5))] {
        let write = WorkRequest::new(id, Operation::Write { remote, immediate }, &[]);
        let now = net.now();
        let request = WorkRequest { inline: b"data", ..write };
        net.hosts[0].endpoint.post(now, connection, streams[0], request).unwrap();
    }
    let done = net.run_until(SECOND, |net| net.hosts[1].memory.bytes(to.id)[8..12] == *b"data");
    assert!(done, "the second message is placed");
    net.filter = None;
    let now = net.now();
    net.hosts[1].endpoint.reset_stream(now, peer, streams[0]).unwrap();
    let send = WorkRequest::new(2, Operation::Send { immediate: None }, &[]);
    let request = WorkRequest { inline: b"other", ..send };
    net.hosts[0].endpoint.post(now, connection, streams[1], request).unwrap();
    let done = wait(&mut net, 1, 1);
    all_good(&done);
    assert_eq!((done[0].id, done[0].stream, done[0].kind), (7, streams[1], CompletionKind::Receive));
}

#[test]
fn a_queue_that_a_stream_draws_on_stays() {
    let mut net = network(2, Faults::NONE);
    let [connection, _] = connect(&mut net);
    let endpoint = &mut net.hosts[0].endpoint;
    let [used, free] = [0, 1].map(|_| endpoint.create_queue(QueueOptions::default()).unwrap());
    let stream = endpoint.open_stream(connection).unwrap();
    let options = StreamOptions { shared_queue: Some(used), ..StreamOptions::default() };
    endpoint.configure_stream(connection, stream, options).unwrap();
    assert_eq!(endpoint.destroy_queue(used), Err(PostError::NoQueue));
    assert_eq!(endpoint.destroy_queue(free), Ok(()));
    assert_eq!(endpoint.destroy_queue(free), Err(PostError::NoQueue), "it is gone");
}
