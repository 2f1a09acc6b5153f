#!/usr/bin/env node

import './node-version'
import { readFileSync } from 'node:fs'
import path from 'node:path'
import { describeError, loadDataSource, number, outliveReaders } from './terminal'
import { findEntity } from './entity'
import { runImport } from './import'
import { openList } from './list'
import { recount } from '../numbers'
import { LIBRARY_SQL } from '../core'
import { runAdopt } from './adopt'
import { explainError, runDoctor } from './commands'
import {
  EXIT,
  type ExitCode,
  helpOf,
  type Invocation,
  parseInvocation,
  type PrintInvocation,
  UsageError,
} from './usage'
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'

/**
 * Lets V8 collect garbage when the heap has grown by a quarter. By default, V8 waits until the heap is several times as
 * large. In an import that needs 30 MB, rows that were stored long ago would fill another 100 MB before one is freed.
 * The space for new objects does not grow either. It would grow to 30 or 60 MB, nearly all of it garbage.
 */
function keepHeapSmall(): void {
  setFlagsFromString('--heap-growing-percent=25')
  setFlagsFromString('--semi-space-growth-factor=1')
  setFlagsFromString('--expose-gc')
  // The first collection sets the limit for the next.
  const collect: unknown = runInNewContext('globalThis.gc')
  if (typeof collect === 'function') collect()
}

async function main(args: readonly string[]): Promise<ExitCode> {
  const invocation = parseInvocation(args)
  if (invocation.kind === 'help') process.stdout.write(helpOf(invocation.command))
  else if (invocation.kind === 'sql') process.stdout.write(LIBRARY_SQL)
  else if (invocation.kind === 'explain')
    process.stdout.write(explainError(packageFile('docs/errors.md'), invocation.error))
  else if (invocation.kind === 'version')
    process.stdout.write(`${(JSON.parse(packageFile('package.json')) as { version: string }).version}\n`)
  else return await connected(invocation)
  return EXIT.done
}

/** Reads a file of this package. */
const packageFile = (name: string): string => readFileSync(path.join(__dirname, '../..', name), 'utf8')

/** Connects, does the work of a command, and disconnects. */
async function connected(invocation: Exclude<Invocation, PrintInvocation>): Promise<ExitCode> {
  const dataSource = await loadDataSource(invocation.dataSource)
  const command = invocation.kind === 'import' ? { ...invocation, opened: await openList(invocation.list) } : invocation
  // Without the DataSource's schema options, because a command must only change what its help describes.
  dataSource.setOptions({ synchronize: false, migrationsRun: false, dropSchema: false })
  if (!dataSource.isInitialized) await dataSource.initialize()
  try {
    keepHeapSmall()
    if (command.kind === 'recount') {
      const { metadata, property: by } = findEntity(dataSource, command.entity)
      const rows = await recount(dataSource.manager, metadata.target, undefined, by === undefined ? {} : { by })
      process.stdout.write(`${number(rows)} rows count.\n`)
      return EXIT.done
    }
    const run = { dataSource, streams: process, signal: interruption() }
    if (command.kind === 'import') return await runImport({ ...run, invocation: command }, command.opened)
    if (command.kind === 'doctor') return await runDoctor({ ...run, invocation: command })
    return await runAdopt({ ...run, invocation: command })
  } finally {
    await dataSource.destroy()
  }
}

/** The exit codes that a shell reports for a process that a signal ended. */
const STOPPED = { SIGINT: EXIT.interrupted, SIGTERM: 143 } as const

let stoppedBy: keyof typeof STOPPED = 'SIGINT'

/** The first Ctrl-C or SIGTERM aborts the signal, so that running batches can finish. The second ends the process. */
function interruption(): AbortSignal {
  const controller = new AbortController()
  for (const signal of ['SIGINT', 'SIGTERM'] as const) {
    process.on(signal, () => {
      stoppedBy = signal
      if (controller.signal.aborted) process.exit(STOPPED[signal])
      controller.abort()
    })
  }
  return controller.signal
}

async function run(): Promise<void> {
  outliveReaders(process)
  let code: ExitCode
  try {
    code = await main(process.argv.slice(2))
  } catch (error) {
    const usage = error instanceof UsageError
    process.stderr.write(`${describeError(error)}\n${usage ? 'See typeorm-unique-text --help.\n' : ''}`)
    code = usage ? EXIT.usage : EXIT.failed
  }
  // Handles that the user's DataSource file has opened must not keep the process alive, and no output must be lost.
  for (const stream of [process.stdout, process.stderr]) await new Promise((resolve) => stream.write('', resolve))
  process.exit(code === EXIT.interrupted ? STOPPED[stoppedBy] : code)
}

void run()
