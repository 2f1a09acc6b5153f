import { spawnSync } from 'node:child_process'
import { mkdtempSync, readFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import path from 'node:path'

const PAGE = path.resolve(import.meta.dirname, '../../../docs/adopting.md')

/** The script of docs/adopting.md that restores merged rows from a list. */
export function restoreScript(list: string): string {
  const page = readFileSync(PAGE, 'utf8')
  const [, script = ''] = /<!-- executed: restore -->\s+```sql\n(.*?)```/su.exec(page) ?? []
  const [, ...more] = script.split('merge.jsonl')
  if (more.length !== 1) throw new TypeError('The page names the list once.')
  return script.replace('merge.jsonl', list)
}

/**
 * Runs the script in psql.
 *
 * @param only a condition that is added to choose lines
 * @returns what psql prints, line by line, of the statements that it has made
 */
export function restore(url: string, list: string, only?: string): string[] {
  const script = restoreScript(list).replace(
    '\nORDER BY n DESC',
    `${only === undefined ? '' : `\n  AND ${only}`}\nORDER BY n DESC`,
  )
  const args = [url, '--no-psqlrc', '-v', 'ON_ERROR_STOP=1']
  const { status, stdout, stderr } = spawnSync('psql', args, { input: script, encoding: 'utf8' })
  if (status !== 0) throw new Error(`psql: ${stderr}`)
  return stdout.split('\n').filter((line) => /^(?:INSERT|UPDATE) /.test(line))
}

/** A name for a list that is not there yet. */
export const newList = (): string => path.join(mkdtempSync(path.join(tmpdir(), 'merge-')), 'merge.jsonl')

/** The lines of a list. */
export const linesOf = (list: string): Record<string, unknown>[] =>
  readFileSync(list, 'utf8')
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => JSON.parse(line) as Record<string, unknown>)
