//! Readers whose answers fill the line of the victim, while an honest writer waits for its acknowledgements.

use super::*;

const SEED: u64 = 39;
/// The line of every host.
const LINE_KBPS: u32 = 10_000_000;

/// Readers whose answers fill the line of the victim.
struct Readers {
    scene: Scene,
    handles: Vec<[ConnectionHandle; 2]>,
    into: Segment,
    /// Packets of the hostile and of the honest host.
    packets: Rc<Cell<[u64; 2]>>,
    silent: Rc<Cell<bool>>,
    posted: u16,
}

impl Readers {
    /// Whose endpoints know the rate of their lines.
    fn new(connections: usize) -> Self {
        Self::new_with(connections, |_| LINE_KBPS)
    }

    /// Whose endpoints take their lines for what `rate_kbps` says of each.
    fn new_with(connections: usize, rate_kbps: impl Fn(usize) -> u32) -> Self {
        let mut scene = Scene::new_with(SEED, &Limits::HOST, |config| {
            config.inbound_rate_kbps = rate_kbps((config.seed - 3 * SEED) as usize);
        });
        let handles: Vec<_> = (0..connections).map_while(|_| open(&mut scene.net, HOSTILE)).collect();
        assert_eq!(handles.len(), connections);
        let into = scene.net.hosts[HOSTILE].register(vec![0; MESSAGE as usize]);
        let into = Segment { region: into.id, offset: 0, length: MESSAGE };
        let (packets, silent) = (Rc::new(Cell::new([0; 2])), Rc::new(Cell::new(false)));
        let (count, mute) = (Rc::clone(&packets), Rc::clone(&silent));
        scene.net.filter = Some(Box::new(move |from, _| {
            let [hostile, honest] = count.get();
            count.set([hostile + u64::from(from == HOSTILE), honest + u64::from(from == HONEST)]);
            from == HOSTILE && mute.get()
        }));
        Self { scene, handles, into, packets, silent, posted: 0 }
    }

    /// Has packets of theirs be lost where `loses` says so, of the packets of both so far.
    fn lose(&mut self, mut loses: impl FnMut([u64; 2]) -> bool + 'static) {
        let count = Rc::clone(&self.packets);
        self.scene.net.filter = Some(Box::new(move |from, _| {
            let [hostile, honest] = count.get();
            let lost = from == HOSTILE && loses([hostile, honest]);
            let counted = u64::from(from == HOSTILE && !lost);
            count.set([hostile + counted, honest + u64::from(from == HONEST)]);
            lost
        }));
    }

    /// Has each of them ask for so many more messages.
    fn post(&mut self, messages: u16) {
        let Self { scene, handles, into, posted, .. } = self;
        post_reads(&mut scene.net, handles, *into, scene.target.key, posted, messages);
    }

    /// Messages that the honest connection completes, while the readers ask for one each for every so many of its packets,
    /// and the packets that both sent.
    fn goodput(&mut self, every: u64) -> (u64, [u64; 2]) {
        let Self { scene, handles, into, packets, posted, .. } = self;
        let (into, key) = (*into, scene.target.key);
        packets.set([0; 2]);
        let done = scene.goodput(|net, number| {
            net.hosts[HOSTILE].take_events();
            if every > 0 && number % every == 0 {
                post_reads(net, handles, into, key, posted, 1);
            }
        });
        (done, packets.get())
    }
}

fn post_reads(
    net: &mut Network<HeapStorage>,
    handles: &[[ConnectionHandle; 2]],
    into: Segment,
    key: RegionKey,
    posted: &mut u16,
    messages: u16,
) {
    let remote = RemoteAddress { key, address: 0 };
    for _ in 0..messages {
        for [ours, _] in handles {
            let request =
                WorkRequest::new(u64::from(*posted), Operation::Read { remote }, std::slice::from_ref(&into));
            let now = net.now();
            // Its own tables may be full.
            let _ = net.hosts[HOSTILE].endpoint.post(now, *ours, StreamId(*posted % 16), request);
        }
        *posted = posted.wrapping_add(1);
    }
}

/// They get what is left of the line: acknowledgements go before data, and data waits in the endpoint until all that went
/// before it has left.
#[test]
//= MR-SEC-12, MR-SEC-13 test
fn readers_that_send_as_many_packets_as_the_honest_one_cost_it_less_than_a_tenth() {
    for connections in [4, 60] {
        let mut readers = Readers::new(connections);
        let (alone, _) = readers.goodput(0);
        readers.post(200);
        // They have all begun at once.
        let (beginning, _) = readers.goodput(15);
        let (under, [hostile, honest]) = readers.goodput(15);
        println!(
            "{connections} readers: {alone} alone, {beginning} at first, then {under}; {hostile} and {honest} packets"
        );
        assert!(10 * hostile >= 9 * honest, "{hostile} packets against {honest}");
        assert!(10 * under >= 9 * alone, "{connections} readers: {under} messages of {alone}");
        assert!(
            10 * beginning >= 9 * alone,
            "{connections} readers: {beginning} messages of {alone} at first"
        );
    }
}

#[test]
//= MR-SEC-12, MR-SEC-13 test
fn readers_that_fall_silent_cost_less_than_a_tenth() {
    for connections in [4, 60] {
        let mut readers = Readers::new(connections);
        let (alone, _) = readers.goodput(0);
        readers.post(200);
        readers.scene.net.run_for(50_000);
        readers.silent.set(true);
        let spans = [readers.goodput(0).0, readers.goodput(0).0];
        println!("{connections} readers that fell silent: {alone} alone, {spans:?} in two spans");
        assert!(20 * (spans[0] + spans[1]) >= 36 * alone, "{spans:?} messages of {alone}");
    }
}

/// What they ask for again and again is answered once; what they do not acknowledge goes by what a window holds.
#[test]
//= MR-SEC-12, MR-SEC-13 test
fn readers_whose_own_packets_are_lost_cost_less_than_a_tenth_once_they_are_known() {
    for connections in [4, 60] {
        // At random, with more packets than the writer sends; then all beyond as many as the writer sends.
        for loss in [Some(300_000), Some(500_000), None] {
            let mut readers = Readers::new(connections);
            let (alone, _) = readers.goodput(0);
            let mut random = Random::new(5);
            readers.lose(move |[hostile, honest]| match loss {
                Some(loss) => random.chance(loss),
                None => hostile >= honest,
            });
            readers.post(200);
            let spans = [readers.goodput(15), readers.goodput(15)];
            println!("{connections} readers, loss {loss:?}: {alone} alone, {spans:?} in two spans");
            let [(first, _), (second, _)] = spans;
            assert!(4 * first >= 3 * alone && 10 * second >= 9 * alone, "{spans:?} messages of {alone}");
        }
    }
}

/// What the readers say that they can take holds it.
#[test]
//= MR-CC-22 test
fn an_endpoint_told_ten_times_the_rate_of_its_line_is_held_by_the_shares_that_readers_tell() {
    for connections in [4, 60] {
        let mut readers =
            Readers::new_with(connections, |host| if host == VICTIM { 10 * LINE_KBPS } else { LINE_KBPS });
        let (alone, _) = readers.goodput(0);
        readers.post(200);
        let spans = [readers.goodput(15).0, readers.goodput(15).0];
        println!("{connections} readers, the victim told ten times: {alone} alone, {spans:?} in two spans");
        assert!(20 * (spans[0] + spans[1]) >= 36 * alone, "{spans:?} messages of {alone}");
    }
}

/// A peer that says it can take ten times what its line carries has windows feed all paths at once, and each of them then
/// looks for its MTU: a megabyte of padded PROBEs, for which data has to wait as for all else.
#[test]
//= MR-SEC-13 test
fn readers_that_boast_cost_less_than_a_tenth() {
    for connections in [4, 60] {
        let mut readers =
            Readers::new_with(connections, |host| if host == HOSTILE { 10 * LINE_KBPS } else { LINE_KBPS });
        let (alone, _) = readers.goodput(0);
        readers.post(200);
        let spans = [readers.goodput(15).0, readers.goodput(15).0];
        println!("{connections} readers that boast: {alone} alone, {spans:?} in two spans");
        assert!(20 * (spans[0] + spans[1]) >= 36 * alone, "{spans:?} messages of {alone}");
    }
}
