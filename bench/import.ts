import { createRequire } from 'node:module'
import path from 'node:path'
import type { DataSource } from 'typeorm'

const builtRequire = createRequire(__filename)
const dist = path.resolve(__dirname, '../dist/cli')
const { findImportTarget, importLines } = builtRequire(path.join(dist, 'import')) as typeof import('../src/cli/import')

const CHUNK_LINES = 1_000

/** What the import command does with a file, from lines in memory, so that reading the disk is in neither figure. */
export async function importAll(dataSource: DataSource, entity: string, lines: readonly string[]): Promise<void> {
  async function* chunks(): AsyncGenerator<readonly string[]> {
    for (let start = 0; start < lines.length; start += CHUNK_LINES) yield lines.slice(start, start + CHUNK_LINES)
  }
  const { end, created, found, rejected } = await importLines(
    dataSource,
    findImportTarget(dataSource, { entity }),
    chunks(),
  )
  if (end.kind !== 'done') throw new Error(`The import ended as ${end.kind}.`, { cause: end })
  if (created + found + rejected !== lines.length) throw new Error(`${created} + ${found} + ${rejected} are not all.`)
}
