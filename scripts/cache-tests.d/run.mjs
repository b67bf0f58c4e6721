// Runs the suite: its origin, curtsy before it, its client with requests in absolute form. Prints counts and failures.
import { spawn } from 'node:child_process'
import fs from 'node:fs'
import http from 'node:http'
import os from 'node:os'
import path from 'node:path'
import readline from 'node:readline'
import { pathToFileURL } from 'node:url'

const [suite, program] = process.argv.slice(2)
const checkout = fs.existsSync(path.join(suite, 'test-engine')) // else the package on npm, which is older
const load = file => import(pathToFileURL(path.join(suite, file)))
const engine = file => load(path.join(checkout ? 'test-engine' : '', file))

// What differs from the defaults, and why: docs/cache.md.
const SETTINGS = `listen = ["127.0.0.1:0"]
admin = "off"
state_dir = "memory"
log.format = "json"
access.allow_destinations = ["127.0.0.0/8"]
politeness.delay = "0s"
politeness.concurrency = 1000
robots.mode = "off"
retry.max = 0
breaker.failures = 0
adaptive.policy = "off"
adaptive.statuses = []
cache.unkeyed = ["test-id", "test-name", "req-num"]
`

// Starts the suite's origin on a free loopback port. Its own server.mjs listens on every address.
async function startOrigin () {
  const handlers = {}
  for (const name of ['config', 'test', 'state']) handlers[name] = (await engine(`server/handle-${name}.mjs`)).default
  const server = http.createServer((request, response) => {
    const [kind, ...rest] = new URL(request.url, 'http://origin').pathname.slice(1).split('/')
    const handle = handlers[kind]
    if (handle) handle(rest, request, response)
    else response.writeHead(404).end()
  })
  await new Promise(resolve => server.listen(0, '127.0.0.1', resolve))
  return server
}

// Starts curtsy; returns its process and address.
async function startCurtsy (folder) {
  const config = path.join(folder, 'curtsy.toml')
  fs.writeFileSync(config, SETTINGS)
  const bare = Object.fromEntries(Object.entries(process.env).filter(([name]) => !/^CURTSY_|_proxy$/i.test(name)))
  const child = spawn(program, ['--config', config], { env: bare, stdio: ['ignore', 'ignore', 'pipe'] })
  const log = []
  const address = await new Promise((resolve, reject) => {
    readline.createInterface({ input: child.stderr }).on('line', line => {
      log.push(line)
      if (line.includes('"event":"ready"')) resolve(JSON.parse(line).proxy)
    })
    child.on('exit', () => reject(new Error('curtsy ended:\n' + log.join('\n'))))
  })
  return { child, address }
}

// Returns what the suite's client takes for `fetch`: asks through the proxy in absolute form, and keeps interim responses.
function fetchThrough (address) {
  const [host, port] = address.split(':')
  const agent = new http.Agent({ keepAlive: true })
  return (url, init = {}) => new Promise((resolve, reject) => {
    const fields = new Headers(init.headers)
    const body = init.body === undefined ? undefined : Buffer.from(init.body)
    if (body) fields.set('content-length', `${body.length}`)
    fields.set('host', new URL(url).host)
    const headers = [...fields].flat()
    const request = http.request({ host, port, agent, method: init.method || 'GET', path: url, headers, timeout: 20_000 })
    const interimResponses = []
    request.on('information', info => interimResponses.push([info.statusCode, info.headers]))
    request.on('timeout', () => request.destroy(new Error('no answer within 20 s')))
    request.on('error', reject)
    request.on('response', response => {
      const pieces = []
      response.on('data', piece => pieces.push(piece))
      response.on('error', reject)
      response.on('end', () => resolve(answer(response, Buffer.concat(pieces), interimResponses)))
    })
    request.end(body)
  })
}

function answer (response, body, interimResponses) {
  const headers = new Headers()
  for (let i = 0; i < response.rawHeaders.length; i += 2) headers.append(response.rawHeaders[i], response.rawHeaders[i + 1])
  const { statusCode: status, statusMessage: statusText } = response
  return { status, statusText, headers, interimResponses, text: async () => body.toString() }
}

async function readTests () {
  const groups = [...(await load('tests/index.mjs')).default]
  const extra = path.join('tests', 'surrogate-control.mjs') // which the older cli.mjs adds
  if (!checkout && fs.existsSync(path.join(suite, extra))) groups.push((await load(extra)).default)
  return groups.map(group => ({ ...group, tests: group.tests.filter(test => test.browser_only !== true) }))
}

// Which failures are expected: the reason by test.
function readAccepted () {
  const file = new URL('accepted.json', import.meta.url)
  const rows = JSON.parse(fs.readFileSync(file)).filter(row => !checkout || row.only !== 'package')
  return new Map(rows.flatMap(row => row.tests.map(id => [id, row.why])))
}

// Prints counts and failures; returns how many failures of required and optimal tests were not expected.
function report (tests, results) {
  const accepted = readAccepted()
  const kinds = { required: [], optimal: [], check: [] }
  for (const test of tests) kinds[test.kind || 'required'].push(test)
  const passed = list => list.filter(({ id }) => results[id] === true).length
  console.log(`all       ${passed(tests)} of ${tests.length}`)
  for (const [kind, list] of Object.entries(kinds)) console.log(`${kind.padEnd(9)} ${passed(list)} of ${list.length}`)
  let unexpected = 0
  for (const kind of ['required', 'optimal', 'check']) {
    for (const { id } of kinds[kind]) {
      const known = accepted.get(id)
      if (results[id] === true) {
        if (known) console.log(`passes, though listed as accepted: ${id}`)
        continue
      }
      const reason = known || (kind === 'check' ? 'a question without a right answer' : 'NOT EXPECTED')
      if (!known && kind !== 'check') unexpected++
      console.log(`${kind.padEnd(9)} ${id}: ${(results[id] || ['not run']).join(': ')} (${reason})`)
    }
  }
  return unexpected
}

const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'curtsy-cache-tests-'))
const origin = await startOrigin()
const { child, address } = await startCurtsy(folder)
console.warn = console.error = () => {} // the suite's engine prints each request that it did not expect
const said = console.log
let unexpected
try {
  const groups = await readTests()
  const runner = await engine('client/runner.mjs')
  console.log = () => {}
  await runner.runTests(groups, fetchThrough(address), false, `http://127.0.0.1:${origin.address().port}`)
  console.log = said
  unexpected = report(groups.flatMap(group => group.tests), runner.getResults())
} finally {
  child.removeAllListeners('exit')
  child.kill()
  fs.rmSync(folder, { recursive: true })
}
process.exit(unexpected ? 1 : 0)
