//! Groups the commands in `curtsy --help` by their purpose.

use clap::Command;

/// Commands that are in neither group are listed under "Set up".
const GROUPS: [(&str, &[&str]); 2] = [
    ("Run", &["run", "exec", "env"]),
    (
        "Inspect and control",
        &[
            "status", "top", "tail", "hosts", "host", "clients", "client", "fleet", "explain", "check", "robots",
            "judge", "reload", "simulate",
        ],
    ),
];
const THE_REST: &str = "Set up";

/// Returns the same command line with its commands in groups.
pub(super) fn grouped(command: Command) -> Command {
    let commands = groups(&command);
    // clap would read braces as parts of the template.
    let commands = commands.replace(['{', '}'], "");
    command.help_template(format!(
        "{{before-help}}{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{commands}Options:\n{{options}}{{after-help}}"
    ))
}

fn groups(command: &Command) -> String {
    let shown = || command.get_subcommands().filter(|sub| !sub.is_hide_set());
    let width = shown().map(|sub| sub.get_name().len()).max().unwrap_or(0);
    let line = |sub: &Command| {
        let about = sub.get_about().map(ToString::to_string).unwrap_or_default();
        format!("  {:width$}  {about}\n", sub.get_name())
    };
    let named = |name: &str| GROUPS.iter().any(|(_, names)| names.contains(&name));
    let mut page = String::new();
    for (title, names) in GROUPS {
        let lines: String =
            names.iter().filter_map(|name| shown().find(|sub| sub.get_name() == *name)).map(line).collect();
        page.push_str(&format!("{title}:\n{lines}\n"));
    }
    let rest: String = shown().filter(|sub| !named(sub.get_name())).map(line).collect();
    page + &format!("{THE_REST}:\n{rest}  {:width$}  Print this message or the help of a command\n\n", "help")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_stands_in_one_group() {
        let sub = |name: &'static str| Command::new(name).about("Does it");
        let command = Command::new("x").subcommands([sub("top"), sub("exec"), sub("new"), sub("secret").hide(true)]);
        let page = groups(&command);
        assert!(page.starts_with(
            "Run:\n  exec  Does it\n\nInspect and control:\n  top   Does it\n\nSet up:\n  new   Does it\n"
        ));
        assert!(!page.contains("secret"), "{page}");
    }
}
