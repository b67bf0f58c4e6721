// An origin that speaks HTTP/2 alone: node http2_origin.js CERTIFICATE KEY START. Prints its port, then a line per
// request. START is the page that makes a browser fetch the others.
const fs = require("fs");
const http2 = require("http2");

const START = process.argv[4];
const [cert, key] = process.argv.slice(2, 4).map((path) => fs.readFileSync(path));
const server = http2.createSecureServer({ cert, key });
server.on("stream", (stream, headers) => {
  console.log(`${Date.now() / 1000} ${headers[":path"]}`);
  stream.respond({ ":status": 200, "content-type": "text/html" });
  stream.end(headers[":path"] === "/start" ? START : "<p>hello</p>".repeat(100));
});
server.listen(0, "127.0.0.1", () => console.log(server.address().port));
