// An origin by Node's http: prints the port it listens on, then each request as it reads it, as JSON.
const server = require("http").createServer((request, response) => {
  let length = 0;
  request.on("data", (piece) => (length += piece.length));
  request.on("end", () => {
    console.log(JSON.stringify([request.method, request.url, length]));
    response.end();
  });
});
server.listen(0, "127.0.0.1", () => console.log(server.address().port));
