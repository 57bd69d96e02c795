use super::*;
use serde_json::Value;

const COMMAND: &str = "/usr/bin/kael-runner --config /etc/kael/bot.toml hook-stop";
const TAIL: &str = "--config /etc/kael/bot.toml hook-stop";

fn install_into(text: &str) -> String {
    let (change, after) = added(text, Path::new("settings.json"), COMMAND, TAIL).unwrap();
    assert_eq!(change, Change::Installed, "{text}");
    after
}

fn value(text: &str) -> Value {
    serde_json::from_str(text.trim_start_matches('\u{feff}'))
        .unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// Settings as people have them.
const SHAPES: [&str; 14] = [
    "{}",
    "{\n}\n",
    "{\"model\":\"opus\"}",
    "{\n  \"model\": \"opus\"\n}\n",
    "{\n\t\"model\": \"opus\",\n\t\"env\": {\"A\": \"1\"}\n}\n",
    "{\r\n    \"model\": \"opus\"\r\n}\r\n",
    "\u{feff}{\n  \"model\": \"opus\"\n}\n",
    "{\n  \"hooks\": {\n    \"PreToolUse\": [{\"matcher\": \"Bash\", \"hooks\": []}]\n  },\n  \"model\": \"opus\"\n}\n",
    "{\n  \"hooks\": {\n    \"Stop\": [\n      {\n        \"hooks\": [\n          {\"type\": \"command\", \"command\": \"say done\"}\n        ]\n      }\n    ]\n  }\n}\n",
    "{\"hooks\":{\"Stop\":[{\"hooks\":[{\"type\":\"command\",\"command\":\"a\"}]}]}}",
    "{ \"hooks\": { \"Stop\": [ { \"matcher\": \"\", \"hooks\": [ { \"type\": \"command\", \"command\": \"a\" } ] }, \"odd\", null ] } }",
    "{\n  \"a\": \"\\u00e9 \\\\ \\\" {[\", \"灯\": [1.50, 1e3, -0.0, 12345678901234567890],\n\n\n  \"z\": null\n}",
    "{\n  // my own note\n  \"model\": \"opus\" /* here */\n}\n",
    "{\n  \"model\": \"opus\",\n}\n",
];

#[test]
fn the_hook_goes_in_and_out_of_settings_of_many_shapes_and_leaves_no_trace() {
    for text in SHAPES {
        let after = install_into(text);
        let strict = serde_json::from_str::<Value>(text.trim_start_matches('\u{feff}')).is_ok();
        if strict {
            let stop = value(&after)["hooks"]["Stop"].clone();
            let own = stop.as_array().unwrap().last().unwrap().clone();
            assert_eq!(
                own,
                serde_json::json!({"hooks": [{"type": "command", "command": COMMAND, "timeout": 10}]}),
                "{after}"
            );
        }
        // Twice is once.
        assert_eq!(added(&after, Path::new("x"), COMMAND, TAIL).unwrap().0, Change::None, "{after}");
        let (change, back) = removed(&after, Path::new("x"), TAIL).unwrap();
        assert_eq!(change, Change::Removed);
        if strict {
            assert_eq!(value(&back), value(text), "{back}");
        }
        let squeezed = |text: &str| text.split_whitespace().collect::<String>();
        assert_eq!(squeezed(&back), squeezed(text), "everything else stays");
        assert_eq!(removed(&back, Path::new("x"), TAIL).unwrap().0, Change::None);
    }
}

#[test]
fn everything_else_stays_byte_for_byte() {
    // In what stands on one line, white space is put between the braces.
    for text in SHAPES.into_iter().filter(|text| text.contains(":") && text.contains('\n')) {
        let after = install_into(text);
        let (_, back) = removed(&after, Path::new("x"), TAIL).unwrap();
        assert_eq!(back, text);
        if text.contains("/*") {
            // The comma goes in front of a comment.
            continue;
        }
        // What was there before is still there, in one or two pieces around what was put in.
        let common = text.bytes().zip(after.bytes()).take_while(|(a, b)| a == b).count();
        let rest = &text.as_bytes()[common..];
        let kept = rest
            .iter()
            .rev()
            .zip(after.as_bytes()[common..].iter().rev())
            .take_while(|(a, b)| a == b)
            .count();
        let lost = &rest[..rest.len() - kept];
        assert!(
            lost.iter().all(u8::is_ascii_whitespace),
            "{:?} of {text:?} was lost in {after:?}",
            String::from_utf8_lossy(lost)
        );
        if text.contains("\r\n") {
            assert!(!after.replace("\r\n", "").contains('\n'), "{after:?}");
        }
    }
}

#[test]
fn an_empty_file_becomes_settings() {
    for text in ["", "\n", "  "] {
        let after = install_into(text);
        assert!(
            value(&after)["hooks"]["Stop"][0]["hooks"][0]["command"] == COMMAND && after.ends_with('\n'),
            "{after}"
        );
    }
    insta::assert_snapshot!(install_into(""), @r#"
    {
      "hooks": {
        "Stop": [
          {
            "hooks": [
              {
                "type": "command",
                "command": "/usr/bin/kael-runner --config /etc/kael/bot.toml hook-stop",
                "timeout": 10
              }
            ]
          }
        ]
      }
    }
    "#);
}

#[test]
fn another_program_path_is_corrected_and_another_companion_is_another_entry() {
    let after = install_into("{}");
    let moved = COMMAND.replace("/usr/bin", "/opt/bin");
    let (change, corrected) = added(&after, Path::new("x"), &moved, TAIL).unwrap();
    assert_eq!(change, Change::Installed);
    assert_eq!(corrected, after.replace("/usr/bin", "/opt/bin"));
    let other = "--config /etc/kael/other.toml hook-stop";
    let (_, both) = added(&after, Path::new("x"), &format!("/usr/bin/kael-runner {other}"), other).unwrap();
    assert_eq!(value(&both)["hooks"]["Stop"].as_array().unwrap().len(), 2);
    assert_eq!(value(&removed(&both, Path::new("x"), other).unwrap().1), value(&after));
}

#[test]
fn a_hook_inside_somebodys_group_goes_alone() {
    let text = format!(
        "{{\"hooks\":{{\"Stop\":[{{\"hooks\":[{{\"command\":\"a\"}},{{\"command\":\"{COMMAND}\"}}]}}]}}}}"
    );
    let (_, after) = removed(&text, Path::new("x"), TAIL).unwrap();
    assert_eq!(after, "{\"hooks\":{\"Stop\":[{\"hooks\":[{\"command\":\"a\"}]}]}}");
}

#[test]
fn what_is_not_understood_is_left_alone() {
    for (text, why) in [
        ("[]", "the whole is not an object"),
        ("{\"hooks\": []}", "hooks is not an object"),
        ("{\"hooks\": {\"Stop\": {}}}", "hooks.Stop is not a list"),
        ("{\"a\": ", "is not JSON"),
        ("{} {}", "is not JSON"),
        ("{\"hooks\": {}, \"hooks\": {}}", "has hooks twice"),
    ] {
        let error = added(text, Path::new("settings.json"), COMMAND, TAIL).unwrap_err();
        assert!(
            error.message.contains(why) && error.message.contains("nothing was changed"),
            "{}",
            error.message
        );
    }
}
