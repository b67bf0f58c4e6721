// Fetches URLs one after the other over one tunnel: node pages.js URL...
const http = require("http");
const https = require("https");
const tls = require("tls");

function open(proxy, authority) {
  return new Promise((resolve, reject) => {
    http
      .request({ host: proxy.hostname, port: proxy.port, method: "CONNECT", path: authority })
      .on("connect", (_, socket) => resolve(socket))
      .on("error", reject)
      .end();
  });
}

function fetch(url, agent) {
  return new Promise((resolve, reject) => {
    https
      .get(url, { agent }, (response) => response.resume().on("end", resolve))
      .on("error", reject);
  });
}

(async () => {
  const urls = process.argv.slice(2);
  const target = new URL(urls[0]);
  const socket = await open(new URL(process.env.https_proxy), target.host);
  const agent = new https.Agent({ keepAlive: true, maxSockets: 1 });
  const secure = tls.connect({ socket, servername: target.hostname, rejectUnauthorized: false });
  agent.createConnection = () => secure;
  for (const url of urls) await fetch(url, agent);
  agent.destroy();
})();
