/**
 * npx tsx test/model/check.ts                    every scenario and every mutation; exit status 1 unless all is as it should be
 * npx tsx test/model/check.ts --only NAME        one scenario, mutation or limit
 * npx tsx test/model/check.ts --only NAME --trace    with the shortest way to its violation
 */
import { parseArgs } from 'node:util'
import { explore, type Result } from './explore'
import { FAULTS, type Fault } from './faults'
import { CAUGHT_BY, LIMITS } from './mutations'
import { initialStates, SCENARIOS, type Scenario } from './scenarios'
import { describeViolation } from './trace'

const { only, trace } = parseArgs({
  options: { only: { type: 'string' }, trace: { type: 'boolean', default: false } },
}).values

let failures = 0
let states = 0
let wanted = 0

function isWanted(name: string): boolean {
  const is = only === undefined || only === name
  if (is) wanted += 1
  return is
}

function search(scenario: Scenario, fault?: Fault): Result {
  const result = explore(initialStates(scenario), { fault, trace })
  states += result.states
  if (trace && result.violation !== undefined) console.log(describeViolation(result.violation))
  return result
}

/** What other processes of the machine do hardly changes it. */
function cpuSeconds(): number {
  const { user, system } = process.cpuUsage()
  return (user + system) / 1e6
}

function row(...cells: readonly (string | number)[]): string {
  const [name = '', ...numbers] = cells
  return String(name).padEnd(24) + numbers.map((each) => String(each).padStart(13)).join('')
}

function check(right: boolean): string {
  if (!right) failures += 1
  return right ? 'ok' : 'FAILED'
}

function checkScenario(scenario: Scenario): void {
  const since = cpuSeconds()
  const { violation, ...counts } = search(scenario)
  const seconds = (cpuSeconds() - since).toFixed(1)
  const { states: reached, transitions, depth, deadlocks } = counts
  const starts = [...initialStates(scenario)].length
  const result = check(violation === undefined)
  console.log(row(scenario.name, starts, reached, transitions, depth, deadlocks, seconds, result))
  if (violation !== undefined) console.log(`  ${violation.property} (--only '${scenario.name}' --trace shows how)`)
}

/** The scenario passes with the whole guard, and is violated with the fault. */
function checkMutation(fault: Fault, scenario: Scenario): void {
  const whole = search(scenario)
  const { violation, depth } = search(scenario, fault)
  const [level = ''] = scenario.about.split(' ')
  const result = check(whole.violation === undefined && violation !== undefined)
  console.log(row(fault, '').trimEnd().padEnd(30), level, String(depth).padStart(4), result.padEnd(6), FAULTS[fault])
}

function checkLimit({ name, scenario, property }: (typeof LIMITS)[number]): void {
  const { violation, depth } = search(scenario)
  const result = check(violation?.property === property)
  console.log(name.padEnd(30), scenario.about, String(depth).padStart(4), result.padEnd(6), property ?? 'holds')
}

console.log(row('scenario', 'starts', 'states', 'transitions', 'depth', 'deadlocks', 'CPU s', 'result'))
for (const scenario of SCENARIOS) if (isWanted(scenario.name)) checkScenario(scenario)

console.log('\nmutation, isolation level, depth of the first text stored twice')
for (const [fault, scenario] of Object.entries(CAUGHT_BY)) {
  if (isWanted(fault)) checkMutation(fault as Fault, scenario)
}

console.log('\nlimits that maintainers/protocol.md states')
for (const limit of LIMITS) if (isWanted(limit.name)) checkLimit(limit)

const seconds = performance.now() / 1000
const time = `${seconds.toFixed(0)} s (${cpuSeconds().toFixed(0)} s of CPU)`
console.log(`\n${wanted - failures} as they should be, ${failures} not; ${states} states in ${time}`)
if (failures > 0 || wanted === 0) process.exitCode = 1
