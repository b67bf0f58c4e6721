// Fetches URLs one after the other with fetch: node fetch.js URL... Prints the status and the body of each, or what
// went wrong. Before 22.21 Node reads no proxy variables; there undici gives its fetch an agent that does.
const [major, minor] = process.versions.node.split(".").map(Number);
if (major < 22 || (major === 22 && minor < 21)) {
  const { EnvHttpProxyAgent, setGlobalDispatcher } = require("undici");
  setGlobalDispatcher(new EnvHttpProxyAgent());
}

(async () => {
  for (const url of process.argv.slice(2)) {
    try {
      const answer = await fetch(url);
      console.log(answer.status, await answer.text());
    } catch (error) {
      console.log(error.message, error.cause?.message);
    }
  }
})();
