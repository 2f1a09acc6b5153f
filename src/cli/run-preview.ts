import type { DataSource } from 'typeorm'
import { preview, type PreviewReport } from '../doctor'
import { collapseWhitespace, compose, email, lowerCase, nfc, type Normalizer, trim, url } from '../text'
import { findEntity } from './import-target'
import { loadModule } from './load-data-source'
import { number } from './report'
import { EXIT, type ExitCode } from './run-import'
import { printable, type Streams } from './terminal'
import { type Invocation, UsageError } from './usage'

interface PreviewRun {
  readonly dataSource: DataSource
  readonly invocation: Extract<Invocation, { kind: 'preview' }>
  readonly streams: Streams
  readonly signal: AbortSignal
}

/** Prints what a normalizer would make of the stored texts. */
export async function runPreview({ dataSource, invocation, streams, signal }: PreviewRun): Promise<ExitCode> {
  const { entity, property } = invocation
  const { target } = findEntity(dataSource, entity)
  const normalize = await findNormalizer(invocation.normalize)
  try {
    const report = await preview(dataSource, target, { normalize, property, signal })
    streams.stdout.write(toldPreview(report))
    return EXIT.done
  } catch (error) {
    if (!signal.aborted) throw error
    streams.stderr.write('Stopped. Nothing was changed.\n')
    return EXIT.interrupted
  }
}

const KNOWN: Readonly<Record<string, () => Normalizer>> = { collapseWhitespace, email, lowerCase, nfc, trim, url }

/** By name, several joined by commas; or the normalizer that a file exports. */
async function findNormalizer(given: string): Promise<Normalizer> {
  if (/[/\\.]/.test(given)) return await exportedNormalizer(given)
  const names = given.split(',')
  const found = names.map((name) => KNOWN[name]?.())
  const all = found.filter((one) => one !== undefined)
  if (all.length < names.length) {
    const known = Object.keys(KNOWN).join(', ')
    throw new UsageError(`--normalize is one of: ${known}; several joined by commas; or a file that exports one.`)
  }
  const [only, ...others] = all
  return only && others.length === 0 ? only : compose(...all)
}

async function exportedNormalizer(file: string): Promise<Normalizer> {
  const found = new Set((await loadModule(file)).filter(isNormalizer))
  const [only] = found
  if (only && found.size === 1) return only
  throw new UsageError(`"${file}" must export one normalizer: export default normalizer('name', 1, (text) => …).`)
}

const isNormalizer = (value: unknown): value is Normalizer =>
  typeof value === 'object' && value !== null && 'normalize' in value && 'version' in value

/** For a person. */
function toldPreview({ rows, changed, refused, sample, groups, surplus, first }: PreviewReport): string {
  const part = sample === 1 ? '' : ` in a sample of 1/${number(1 / sample)} of all texts`
  const lines = [
    `${number(rows)} rows; ${number(changed)} texts would be changed.`,
    ...refused.map(
      ({ reason, rows, keys }) =>
        `${number(rows)} would be refused: ${reason}; first keys: ${keys.map((key) => JSON.stringify(key)).join(' ')}`,
    ),
    `${number(groups)} groups of different texts would become one${part}: ${number(surplus)} rows too many.`,
    ...first.flatMap(({ rows, texts, keys }) => [
      `  ${number(rows)} rows, first keys: ${keys.map((key) => JSON.stringify(key)).join(' ')}`,
      ...texts.map((text) => `    ${text}`),
    ]),
  ]
  return lines.map((line) => `${printable(line)}\n`).join('')
}
