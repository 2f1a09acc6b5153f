import { spawn } from 'node:child_process'
import path from 'node:path'

/** Peak resident memory of the import command, in MB (10^6 bytes), for a list of that many lines on standard input. */
export async function peakMegabytes(databaseUrl: string, lineCount: number): Promise<number> {
  const root = path.resolve(__dirname, '..')
  const child = spawn(
    process.execPath,
    [
      '--require',
      path.join(root, 'bench/report-memory.cjs'),
      '--import',
      'tsx',
      path.join(root, 'dist/cli/main.js'),
      'import',
      '-d',
      path.join(root, 'bench/ormconfig.ts'),
      '--entity=NormalizedPage',
      '--property=url',
      '-',
    ],
    { cwd: root, env: { ...process.env, BENCH_DATABASE_URL: databaseUrl }, stdio: ['pipe', 'ignore', 'pipe'] },
  )
  let output = ''
  child.stderr.on('data', (chunk: Buffer) => (output += chunk.toString()))
  const ended = new Promise<number | null>((resolve) => child.once('close', resolve))
  for (let start = 0; start < lineCount; start += 1_000) {
    const lines = Array.from(
      { length: 1_000 },
      (_, index) => `https://example.com/memory/${start + index}?page=${index}\n`,
    )
    if (!child.stdin.write(lines.join(''))) await new Promise((resolve) => child.stdin.once('drain', resolve))
  }
  child.stdin.end()
  const code = await ended
  const kibibytes = /maxrss=(\d+)/.exec(output)?.[1]
  if (code !== 0 || !kibibytes) throw new Error(`The import ended with ${code}: ${output}`)
  return (Number(kibibytes) * 1_024) / 1e6
}
