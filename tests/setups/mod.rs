//! Setups in which `claude` is not ours: a pane, a unit, a loop of one's own.

mod manager;
mod own_loop;
mod pane;
mod service;
mod systemd;
mod tmux;

/// A model that knows the code words of its context, and no others.
fn remembers_code_words(stub: &crate::stubs::messages_api::Stub) {
    stub.clear_rules();
    stub.on(|request| {
        let asked = request.last_human().contains("Which two code words");
        asked.then(|| {
            let context = request.view().join("\n");
            let words = regex::Regex::new("kael[0-9a-f]{8}").unwrap();
            let known: Vec<&str> = words.find_iter(&context).map(|found| found.as_str()).collect();
            crate::stubs::reply::Reply::text(&format!("They are {}.", known.join(" and ")))
        })
    });
}
