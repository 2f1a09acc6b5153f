import { appendFileSync, readFileSync, writeFileSync } from 'node:fs'
import type { Reporter, TestModule } from 'vitest/node'

/**
 * Ends the run with the plain line that CI counts by. Where TEST_TALLY names a file, runs add up in it, and the line
 * tells the sum of those so far. A second file, with `.files` behind its name, gets the seconds of each test file.
 */
export default class PlainSummary implements Reporter {
  onTestRunEnd(modules: readonly TestModule[], unhandledErrors: readonly unknown[]): void {
    let passed = 0
    // A file that failed to load has no tests, yet it is a failure.
    let failed = unhandledErrors.length
    for (const module of modules) {
      if (module.errors().length > 0) failed += 1
      for (const test of module.children.allTests()) {
        const { state } = test.result()
        if (state === 'passed') passed += 1
        if (state === 'failed') failed += 1
      }
    }
    // A server that did not start, or a name with a typo, must not look like success.
    if (passed === 0 && failed === 0) failed = 1
    const [passedInAll, failedInAll] = addUp(process.env['TEST_TALLY'], [passed, failed])
    noteTimes(process.env['TEST_TALLY'], modules)
    // After the summary of vitest's own reporter, which prints later in the same turn.
    process.on('exit', () => {
      if (failed > 0) process.exitCode = 1
      console.log(`${passedInAll} passed, ${failedInAll} failed`)
    })
  }
}

function noteTimes(tally: string | undefined, modules: readonly TestModule[]): void {
  if (!tally) return
  const lines = modules.map((module) => {
    const { collectDuration, duration } = module.diagnostic()
    return `${Math.round((collectDuration + duration) / 1000)} s  ${module.relativeModuleId}\n`
  })
  appendFileSync(`${tally}.files`, lines.join(''))
}

type Counts = readonly [passed: number, failed: number]

/** @param file holds `PASSED FAILED` of the runs before, or nothing yet */
export function addUp(file: string | undefined, [passed, failed]: Counts): Counts {
  if (!file) return [passed, failed]
  const [earlierPassed = 0, earlierFailed = 0] = readFileSync(file, 'utf8').trim().split(' ').map(Number)
  const sum = [earlierPassed + passed, earlierFailed + failed] as const
  writeFileSync(file, sum.join(' '))
  return sum
}
