//! Arguments in, exit code out.

fn main() {
    let mut config = curtsy::config::Config::default();
    config.access.allow_destinations = vec![curtsy::config::Destination::Net("127.0.0.0/8".parse().expect("net"))];
    config.access.connect_ports = None;
    config.access.max_client_connections = 10000;
    config.upstream.pool_per_host = 256;
    let listeners = curtsy::app::Listeners::bind(&config).expect("bind");
    let running = curtsy::app::Running::start(config, listeners).expect("start");
    println!("{}", running.proxy_address());
    loop {
        std::thread::park();
    }
}
