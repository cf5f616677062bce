//! How a case opens connections.

use metaroce_core::wire::Control;

use super::super::control::{Answer, Command, DeviceEvent, HexBytes};
use super::super::link::{Link, low};
use super::super::packet::Terms;
use super::super::port::Source;
use super::super::stop::{Outcome, Stop};
use super::super::wire::{ConnectFields, confirm, control};
use super::{MS, S, Script, US};

impl Script<'_> {
    /// Opens a connection to the device, which accepts into domain 0.
    ///
    /// # Errors
    /// If the handshake fails.
    pub fn connect(&mut self) -> Outcome<Link> {
        self.connect_with(|_| {}, 0)
    }

    /// Opens a connection to the device with other terms.
    ///
    /// # Errors
    /// If the handshake fails.
    pub fn connect_with(&mut self, change: impl FnOnce(&mut ConnectFields), domain: u32) -> Outcome<Link> {
        let mut asked = self.new_terms(control::CONNECT);
        change(&mut asked);
        let mark = self.mark();
        let before = self.incoming_numbers()?.len();
        self.send_connect(Source::Main, &asked)?;
        let number = self.incoming("MR-HS-1", before + 1)?;
        self.done(&Command::Accept { connection: number, domain, private: HexBytes::default() })?;
        let terms = self.expect_accept(mark, &asked)?;
        let link = Link::new(number, asked, terms);
        self.join(&link.terms);
        self.monitor.watch(&link);
        self.send_control(link.theirs(), &confirm(link.terms.nonce))?;
        self.expect_event("MR-HS-14", "the connection opens", |event| {
            *event == DeviceEvent::Connected { connection: number }
        })?;
        Ok(link)
    }

    /// Opens a connection over `planes` planes, with `paths` paths of each.
    ///
    /// # Errors
    /// If the handshake fails; not applicable if the device has fewer planes, skipped if the suite has.
    pub fn connect_planes(
        &mut self,
        planes: u8,
        paths: u8,
        change: impl FnOnce(&mut ConnectFields),
    ) -> Outcome<Link> {
        let listed = (1..planes).map(|plane| self.local(Source::Plane(plane))).collect::<Outcome<_>>()?;
        let link = self.connect_with(
            |asked| {
                (asked.planes, asked.paths) = (listed, paths);
                change(asked);
            },
            0,
        )?;
        if link.planes() < planes || link.paths_each() < paths {
            return Err(Stop::NotApplicable(format!(
                "the device grants {} paths on each of {} planes",
                link.paths_each(),
                link.planes()
            )));
        }
        Ok(link)
    }

    /// From now on the device's addresses on its further planes are known.
    pub fn join(&mut self, terms: &Terms) {
        self.port.join(&terms.planes);
    }

    /// Random identity and generous terms.
    pub fn new_terms(&mut self, kind: u8) -> ConnectFields {
        let (id, nonce) = (low(self.random()) | 1, self.random());
        ConnectFields::new(kind, id, nonce)
    }

    /// The name of the `count`th incoming connection, waited for.
    ///
    /// # Errors
    /// If it does not come.
    pub fn incoming(&mut self, requirement: &str, count: usize) -> Outcome<u32> {
        let span = self.pick(S, 4 * S);
        let until = self.now() + span;
        loop {
            let numbers = self.incoming_numbers()?;
            if let Some(number) = count.checked_sub(1).and_then(|index| numbers.get(index)) {
                return Ok(*number);
            }
            if self.now() >= until {
                return Err(Stop::failed(requirement, "a CONNECT is not reported"));
            }
            self.run(self.pick(50 * US, 3 * MS))?;
        }
    }

    /// The names of all incoming connections so far.
    ///
    /// # Errors
    /// As [`command`](Self::command).
    pub fn incoming_numbers(&mut self) -> Outcome<Vec<u32>> {
        let number = |event: &DeviceEvent| match event {
            DeviceEvent::Incoming { connection, .. } => Some(*connection),
            _ => None,
        };
        Ok(self.poll()?.iter().filter_map(number).collect())
    }

    /// The terms of the ACCEPT that answers `asked`.
    ///
    /// # Errors
    /// If it does not come.
    pub fn expect_accept(&mut self, mark: usize, asked: &ConnectFields) -> Outcome<Terms> {
        let id = asked.id;
        let accept = self.expect("MR-HS-11", mark, "an ACCEPT", |packet| {
            packet.base.connection.0 == id && matches!(packet.control(), Some(Control::Accept(_)))
        })?;
        let terms = accept.terms().ok_or_else(|| Stop::failed("MR-WIRE-28", "ACCEPT has no terms"))?;
        self.check("MR-HS-8", terms.echo == asked.nonce, || {
            format!("ACCEPT echoes {:016x}, CONNECT had {:016x}", terms.echo, asked.nonce)
        })?;
        Ok(terms)
    }

    /// Has the device open a connection to the suite.
    ///
    /// # Errors
    /// If the handshake fails.
    pub fn be_connected_to(&mut self, change: impl FnOnce(&mut ConnectFields)) -> Outcome<Link> {
        let mark = self.mark();
        let remote = self.local(Source::Main)?;
        let command =
            Command::Connect { remote, service: 0, implicit: false, domain: 0, private: HexBytes::default() };
        let Answer::Connection { connection } = self.command(&command)? else {
            return Err(Stop::Broken("connect is not answered by a connection".to_owned()));
        };
        let connect = self.expect("MR-HS-10", mark, "a CONNECT", |packet| {
            matches!(packet.control(), Some(Control::Connect(_)))
        })?;
        let terms = connect.terms().ok_or_else(|| Stop::failed("MR-WIRE-28", "CONNECT has no terms"))?;
        let mut answer = ConnectFields { echo: terms.nonce, ..self.new_terms(control::ACCEPT) };
        change(&mut answer);
        self.send_control(terms.id, &answer.body())?;
        let link = Link::new(connection, answer, terms);
        self.monitor.watch(&link);
        self.expect_event("MR-HS-8", "the connection opens", |event| {
            *event == DeviceEvent::Connected { connection }
        })?;
        Ok(link)
    }
}
