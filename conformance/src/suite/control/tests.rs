use super::*;

#[test]
fn a_command_and_its_line_are_one() {
    let commands = [
        Command::Hello {},
        Command::Restart { settings: Settings { connections: Some(8), ..Settings::default() } },
        Command::Register { length: 64, base: 1 << 40, rights: Right::ALL.to_vec(), domain: 7 },
        Command::Write { region: 1, offset: 2, bytes: HexBytes(vec![0, 0xab, 0xff]) },
        Command::Post {
            connection: 1,
            stream: 2,
            id: u64::MAX,
            request: Request::Atomic {
                word: Place { key: 1, address: 8 },
                opcode: 0x10,
                operands: (u64::MAX, 0),
            },
            segments: vec![Stretch { region: 0, offset: 0, length: 8 }],
            fence: true,
            solicited: false,
        },
    ];
    for command in commands {
        let line = to_line(&command);
        assert!(line.ends_with('\n'));
        assert_eq!(parse_command(line.trim_end().as_bytes()), Ok(command), "{line}");
    }
}

#[test]
fn what_control_md_shows_is_understood() {
    let text = include_str!("../../../CONTROL.md");
    let mut commands = 0;
    let mut answers = 0;
    for line in text.lines() {
        if let Some(command) = line.strip_prefix("> ").filter(|line| line.starts_with('{')) {
            parse_command(command.as_bytes()).unwrap_or_else(|error| panic!("{command}: {error}"));
            commands += 1;
        } else if let Some(answer) = line.strip_prefix("< ") {
            parse_answer(answer.as_bytes()).unwrap_or_else(|error| panic!("{answer}: {error}"));
            answers += 1;
        }
    }
    assert!(commands >= 20 && answers >= 10, "{commands} commands, {answers} answers");
}

#[test]
fn what_is_not_understood_is_an_error() {
    for line in [
        "",
        "{}",
        r#"{"do":"fly"}"#,
        r#"{"do":"hello","loudly":true}"#,
        r#"{"do":"write","region":0,"offset":0,"bytes":"abc"}"#,
        r#"{"do":"write","region":0,"offset":0,"bytes":"zz"}"#,
        r#"{"do":"restart","settings":{"mood":1}}"#,
        r#"{"do":"rekey","region":-1}"#,
    ] {
        assert!(parse_command(line.as_bytes()).is_err(), "{line}");
    }
    assert!(parse_command(&vec![b' '; LINE_BYTES_MAX + 1]).is_err());
}
