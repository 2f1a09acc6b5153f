import { type ChildProcess, spawn } from 'node:child_process'
import path from 'node:path'
import { Readable } from 'node:stream'
import { DataSource } from 'typeorm'
import { NormalizedPage } from './support'

const ROOT = path.resolve(__dirname, '..')
const COMMAND = ['dist/cli/main.js', 'import', '-d', path.join(ROOT, 'bench/ormconfig.ts')]
const LINES_PER_WRITE = 1_000

/** Peak resident memory of the import command, in MB (10^6 bytes), for a list of that many lines on standard input. */
export async function peakMegabytes(databaseUrl: string, lineCount: number): Promise<number> {
  const options = { type: 'postgres', url: databaseUrl, synchronize: true } as const
  const dataSource = await new DataSource({ ...options, entities: [NormalizedPage] }).initialize()
  await dataSource.destroy()
  const child = start(databaseUrl, [...COMMAND, '--entity=NormalizedPage.url', '-'])
  const peak = peakOf(child)
  // What ended it early is in its output.
  child.stdin?.on('error', () => {})
  if (child.stdin) Readable.from(manyLines(lineCount)).pipe(child.stdin)
  return await peak
}

function* manyLines(lineCount: number): Generator<string> {
  for (let start = 0; start < lineCount; start += LINES_PER_WRITE) {
    const length = Math.min(LINES_PER_WRITE, lineCount - start)
    yield Array.from({ length }, (_, at) => `https://example.com/memory/${start + at}?page=${at}\n`).join('')
  }
}

/** The same, of a call of `findOrCreateMany` with so many texts whose results are held. */
export async function peakOfResults(databaseUrl: string, count: number): Promise<number> {
  return await peakOf(start(databaseUrl, ['bench/many-results.ts', String(count)]))
}

function start(databaseUrl: string, command: readonly string[]): ChildProcess {
  return spawn(
    process.execPath,
    ['--require', path.join(ROOT, 'bench/report-memory.cjs'), '--import', 'tsx', ...command],
    {
      cwd: ROOT,
      env: { ...process.env, BENCH_DATABASE_URL: databaseUrl },
      stdio: ['pipe', 'ignore', 'pipe'],
    },
  )
}

async function peakOf(child: ChildProcess): Promise<number> {
  let output = ''
  child.stderr?.on('data', (chunk: Buffer) => (output += chunk.toString()))
  const code = await new Promise<unknown>((resolve, reject) => child.once('error', reject).once('close', resolve))
  const kibibytes = /maxrss=(\d+)/.exec(output)?.[1]
  if (code !== 0 || !kibibytes) throw new Error(`The process ended with ${String(code)}: ${output}`)
  return (Number(kibibytes) * 1_024) / 1e6
}
