#!/usr/bin/env node

import './node-version'
import { readFileSync } from 'node:fs'
import path from 'node:path'
import type { DataSource } from 'typeorm'
import { describeError, loadDataSource, number, outliveReaders } from './terminal'
import { EXIT, type ExitCode, findEntity, findImportTarget, openRefused, runImport } from './import'
import { openList } from './list'
import { recount } from '../numbers'
import { runAdopt } from './adopt'
import { explainError, runDoctor, runPreview } from './commands'
import { HELP, type Invocation, parseInvocation, UsageError } from './usage'
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
  if (args[0] === 'explain') {
    process.stdout.write(explainError(packageFile('docs/errors.md'), args[1]))
    return EXIT.done
  }
  const invocation = parseInvocation(args)
  switch (invocation.kind) {
    case 'help':
      process.stdout.write(HELP)
      return EXIT.done
    case 'version':
      process.stdout.write(`${(JSON.parse(packageFile('package.json')) as { version: string }).version}\n`)
      return EXIT.done
    case 'import':
      return await importCommand(invocation)
    case 'doctor':
      return await connected(invocation.dataSource, async (dataSource) => {
        return await runDoctor({ dataSource, invocation, streams: process, signal: interruption() })
      })
    case 'preview':
      return await connected(invocation.dataSource, async (dataSource) => {
        return await runPreview({ dataSource, invocation, streams: process, signal: interruption() })
      })
    case 'recount':
      return await connected(invocation.dataSource, async (dataSource) => {
        const { entity, property: by } = invocation
        const { target } = findEntity(dataSource, entity)
        const rows = await recount(dataSource.manager, target, undefined, by === undefined ? {} : { by })
        process.stdout.write(`${number(rows)} rows count.\n`)
        return EXIT.done
      })
    case 'adopt':
    case 'abandon':
    case 'unmerge':
      return await connected(invocation.dataSource, async (dataSource) => {
        return await runAdopt({ dataSource, invocation, streams: process, signal: interruption() })
      })
  }
}

/** Reads a file of this package. */
const packageFile = (name: string): string => readFileSync(path.join(__dirname, '../..', name), 'utf8')

async function importCommand(invocation: Invocation & { kind: 'import' }): Promise<ExitCode> {
  const dataSource = await loadDataSource(invocation.dataSource)
  const list = await openList(invocation.list)
  await connect(dataSource)
  try {
    const target = findImportTarget(dataSource, invocation)
    keepHeapSmall()
    const refused = invocation.refused === undefined ? undefined : await openRefused(invocation.refused)
    const signal = interruption()
    return await runImport({ ...invocation, dataSource, target, list, refused, streams: process, signal })
  } finally {
    await dataSource.destroy()
  }
}

/** Connects, does the work of a command, and disconnects. */
async function connected(file: string, work: (dataSource: DataSource) => Promise<ExitCode>): Promise<ExitCode> {
  const dataSource = await loadDataSource(file)
  await connect(dataSource)
  try {
    keepHeapSmall()
    return await work(dataSource)
  } finally {
    await dataSource.destroy()
  }
}

/** Connects without the DataSource's schema options, because a command must only change what its help describes. */
async function connect(dataSource: DataSource): Promise<void> {
  dataSource.setOptions({ synchronize: false, migrationsRun: false, dropSchema: false })
  if (!dataSource.isInitialized) await dataSource.initialize()
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
