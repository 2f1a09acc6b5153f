import { createHash } from 'node:crypto'
import type { DataSource, EntityMetadata, EntityTarget, ObjectLiteral } from 'typeorm'
import { DeclarationError, TextRejectedError } from '../errors'
import { checkOptions, RULE, type Rules } from '../options'
import { type ColumnMetadata, textsOfEntity } from '../registry/registry'
import { tableState } from '../sql/catalog'
import { type Normalizer, normalizeText, toNormalizer } from '../text/normalizer'
import { numberedColumns, readSurroundings } from './sql'
import {
  databaseNames,
  type DoctorKey,
  keyOf,
  missingColumns,
  Reader,
  qualifiedTable,
  countedRows,
  SHOWN_KEYS,
  typed,
} from './findings'

/** Options of `preview`. */
export interface PreviewOptions {
  /** The normalizer to try. */
  readonly normalize: Normalizer
  /** Any string property. @default the entity's only unique text */
  readonly property?: string | undefined
  /** The most texts to keep for comparison. If there are more, only a part of all texts is compared. @default 100000 */
  readonly sampleTexts?: number
  /** Ends the call between two statements. The call then throws the reason of the signal. */
  readonly signal?: AbortSignal
}

/** Texts that would become equal. */
export interface PreviewGroup {
  /** How many rows have texts that become equal. */
  readonly rows: number
  /** The stored texts of the first rows, ten at most, each cut after 200 characters. */
  readonly texts: readonly string[]
  /** The primary keys of the first rows. */
  readonly keys: readonly DoctorKey[]
}

/** The effect of a normalizer on the stored texts. */
export interface PreviewReport {
  /** How many rows were read. */
  readonly rows: number
  /** The number of rows whose texts would change. */
  readonly changed: number
  /** Refused texts for each reason, with the first keys. */
  readonly refused: readonly {
    /** Why the normalizer refuses the texts. */
    readonly reason: string
    /** How many rows. */
    readonly rows: number
    /** The primary keys of the first rows. */
    readonly keys: readonly DoctorKey[]
  }[]
  /** The part of all texts that was searched for groups; 1 for all texts. */
  readonly sample: number
  /** The number of groups of different texts that would become equal, in the sample. */
  readonly groups: number
  /** The number of rows to merge, in the sample: all but one of each group. */
  readonly surplus: number
  /** The first twenty groups. */
  readonly first: readonly PreviewGroup[]
}

const PREVIEW_RULES: Rules<PreviewOptions> = {
  normalize: { takes: (value) => toNormalizer(value as Normalizer) !== undefined, expected: 'a normalizer' },
  property: RULE.name,
  sampleTexts: RULE.positive,
  signal: RULE.signal,
}

const SAMPLE_TEXTS = 100_000
const PREVIEW_ROWS = 5_000
const SHOWN_GROUPS = 20
const SHOWN_CHARACTERS = 200

/**
 * Shows the effect of a normalizer on the stored rows, before anybody decides. It changes nothing, and reads in
 * batches. Texts that would become equal are searched in a part of all texts. The hash of the normalized text selects
 * the part, so that no equal text in it is missed.
 *
 * @throws DeclarationError for a property that holds no text
 * @throws the reason of the signal
 */
export async function preview(
  dataSource: DataSource,
  entity: EntityTarget<ObjectLiteral>,
  options: PreviewOptions,
): Promise<PreviewReport> {
  checkOptions('preview()', options, PREVIEW_RULES, ['normalize'])
  const metadata = dataSource.getMetadata(entity)
  const { column, scope } = onlyColumn(metadata, options.property)
  const queryRunner = dataSource.createQueryRunner('master')
  try {
    const reader = new Reader(queryRunner, PREVIEW_ROWS, options.signal)
    const relation = qualifiedTable(metadata)
    const { table: state } = await tableState(reader.query, relation, [])
    const surroundings = await readSurroundings(reader.query, relation)
    if (!state || !surroundings) throw new DeclarationError(`preview(): there is no table ${relation}.`)
    const key = typed(state, databaseNames(metadata.primaryColumns))
    const table = { rows: countedRows(relation, surroundings), key }
    const seen = new Seen(toNormalizer(options.normalize), column.propertyPath, options.sampleTexts ?? SAMPLE_TEXTS)
    const read = [...scope, column].map(({ databaseName }) => databaseName)
    // If a row lacks such a column, PostgreSQL calls a function of that name, which any role may have made.
    const [missing] = missingColumns(state, [...key.map(({ name }) => name), ...read])
    if (missing !== undefined) {
      throw new DeclarationError(`preview(): ${relation} has no column "${missing}". Run your migrations first.`)
    }
    const select = numberedColumns('c', read)
    const parts = { table, columns: read, texts: [column.databaseName], select }
    for await (const { results } of reader.pages(parts)) {
      for (const result of results) {
        const values = read.map((_, index) => result[`c${index}`] ?? null)
        seen.add(values, keyOf({ metadata, table }, result))
      }
    }
    return seen.report()
  } finally {
    await queryRunner.release()
  }
}

function onlyColumn(
  metadata: EntityMetadata,
  property: string | undefined,
): { readonly column: ColumnMetadata; readonly scope: readonly ColumnMetadata[] } {
  const all = textsOfEntity(metadata)
  const declared = property === undefined && all.length === 1 ? all[0] : all.find(({ name }) => name === property)
  const [text] = declared?.text ?? []
  if (declared && text && declared.text.length === 1) return { column: text.column, scope: declared.scope }
  const column = metadata.columns.find(({ propertyPath }) => propertyPath === property)
  if (column) return { column, scope: [] }
  throw new DeclarationError(`preview(): name a property of ${metadata.name} that holds a text: property: 'url'.`)
}

const digestOfTexts = (values: readonly (string | null)[]): string =>
  createHash('md5').update(JSON.stringify(values)).digest('base64')

class Seen {
  private rows = 0
  private changed = 0
  private readonly refused = new Map<string, { rows: number; readonly keys: DoctorKey[] }>()
  /** The rows of each normalized text, with digests of their different texts. */
  private readonly alike = new Map<
    string,
    { rows: number; readonly stored: Set<string>; readonly texts: string[]; readonly keys: DoctorKey[] }
  >()
  /** The number of zero bits with which the digest of a kept text begins. */
  private bits = 0

  constructor(
    private readonly normalizer: Normalizer,
    private readonly property: string,
    private readonly most: number,
  ) {}

  add(values: readonly (string | null)[], key: DoctorKey): void {
    this.rows += 1
    const [text, scope] = [values.at(-1) ?? null, values.slice(0, -1)]
    if (text === null) return
    const normalized = this.normalized(text, key)
    if (normalized === undefined) return
    if (normalized !== text) this.changed += 1
    const digest = digestOfTexts([...scope, normalized])
    if (!this.isKept(digest)) return
    const found = this.alike.get(digest) ?? { rows: 0, stored: new Set(), texts: [], keys: [] }
    this.alike.set(digest, found)
    found.rows += 1
    const stored = digestOfTexts([text])
    if (found.keys.length < SHOWN_KEYS) {
      if (!found.stored.has(stored)) found.texts.push(text.slice(0, SHOWN_CHARACTERS))
      found.keys.push(key)
    }
    found.stored.add(stored)
    if (this.alike.size <= this.most) return
    this.bits += 1
    for (const one of this.alike.keys()) if (!this.isKept(one)) this.alike.delete(one)
  }

  private normalized(text: string, key: DoctorKey): string | undefined {
    try {
      return normalizeText(this.normalizer, this.property, text)
    } catch (error) {
      if (!(error instanceof TextRejectedError)) throw error
      const found = this.refused.get(error.reason) ?? { rows: 0, keys: [] }
      this.refused.set(error.reason, found)
      found.rows += 1
      if (found.keys.length < SHOWN_KEYS) found.keys.push(key)
      return undefined
    }
  }

  private isKept(digest: string): boolean {
    return Buffer.from(digest, 'base64').readUInt32BE() < 2 ** (32 - this.bits)
  }

  report(): PreviewReport {
    const groups = [...this.alike.values()].filter(({ stored }) => stored.size > 1)
    const { rows, changed } = this
    return {
      rows,
      changed,
      refused: [...this.refused].map(([reason, found]) => ({ reason, ...found })),
      sample: 1 / 2 ** this.bits,
      groups: groups.length,
      surplus: groups.reduce((sum, one) => sum + one.rows - 1, 0),
      first: groups.slice(0, SHOWN_GROUPS).map(({ rows, texts, keys }) => ({ rows, texts, keys })),
    }
  }
}
