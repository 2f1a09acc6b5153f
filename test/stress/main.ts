import { writeFile } from 'node:fs/promises'
import type { Violation } from './journal'
import { type CommandLine, parseCommandLine, USAGE } from './options'
import { countsOf, tableOf, violationsOf } from './report'
import { runStress, type StressResult } from './run'
import { openDatabase } from './server'

/** One run on a database of its own, so that runs know nothing of each other. */
async function runOnce(options: CommandLine, mutation?: string): Promise<StressResult> {
  const database = await openDatabase()
  const { seed = Math.floor(Math.random() * 2 ** 32) } = options
  // Printed before the run, for a server that crashes leaves no table of results.
  if (mutation === undefined)
    console.log(`${database.origin}; ${options.clients} clients, ${options.isolation} isolation, seed ${seed}`)
  try {
    return await runStress({
      url: database.url,
      seconds: options.seconds,
      clients: options.clients,
      isolation: options.isolation,
      texts: options.texts,
      troubles: options.troubles,
      seed,
      ...(mutation === undefined ? {} : { mutation }),
      onProgress: ({ elapsed, operations, violations }) => {
        if (mutation !== undefined) return
        const done = operations.toLocaleString('en')
        console.log(`${Math.round(elapsed / 1_000)} s: ${done} operations, ${violations.length} violations`)
      },
    })
  } finally {
    await database.close()
  }
}

/** True where the guard held. */
async function runWhole(options: CommandLine): Promise<boolean> {
  const result = await runOnce(options)
  console.log(`\n${tableOf(result)}`)
  if (result.journal.violations.length > 0) console.log(`\n${violationsOf(result)}`)
  if (options.json !== undefined) await writeFile(options.json, `${JSON.stringify(countsOf(result), undefined, 2)}\n`)
  return result.journal.violations.length === 0
}

/** True where every fault was found. */
async function runMutated(options: CommandLine): Promise<boolean> {
  const found: boolean[] = []
  const lines: object[] = []
  for (const mutation of options.mutations) {
    const { journal, seed } = await runOnce(options, mutation)
    const [harm] = journal.violations
    found.push(harm !== undefined || journal.sign !== undefined)
    lines.push({ mutation, seed, sign: journal.sign, harm, operations: journal.operations })
    console.log(`${mutation}: ${toldOf('sign', journal.sign)}${toldOf('harm', harm)}seed ${seed}`)
  }
  if (options.json !== undefined) await writeFile(options.json, `${JSON.stringify(lines, undefined, 2)}\n`)
  return found.every(Boolean)
}

function toldOf(kind: string, violation: Violation | undefined): string {
  if (!violation) return kind === 'sign' ? '' : 'no harm found; '
  return `${kind} after ${(violation.milliseconds / 1_000).toFixed(1)} s (${violation.what.slice(0, 100)}); `
}

async function main(): Promise<void> {
  const args = process.argv.slice(2)
  if (args.includes('--help')) {
    console.log(USAGE)
    return
  }
  const options = parseCommandLine(args)
  const success = options.mutations.length > 0 ? await runMutated(options) : await runWhole(options)
  process.exitCode = success ? 0 : 1
}

main().catch((error: unknown) => {
  console.error(error instanceof Error ? error.message : error)
  process.exitCode = 2
})
