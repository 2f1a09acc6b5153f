import { qualified, quote } from '../../sql/identifier'
import type { NamesTable } from '../../sql/names-table'
import { attach } from '../../sql/library'
import { type HandOver, type WantedDeclaration, type WantedTrigger, wantedDeclaration } from '../../triggers/attached'
import { isOwnDigest, type NamesDeclaration, shortDeclaration } from '../../triggers/kinds'
import { type HolderTable, namedSet } from './fragments'

const trigger = (
  table: string,
  suffix: string,
  type: number,
  conditional: boolean,
  transitions = '',
): WantedTrigger => ({ name: namedSet(table, suffix), type, runs: 'all', conditional, transitions })

const labelOf = (table: string): Pick<NamesDeclaration, 'guard'> & { readonly label: string } => {
  const label = namedSet(table)
  return { label, ...(label === `unique_name_${table}` ? {} : { guard: label }) }
}

/**
 * The names of the rows of a table.
 *
 * @param searchSchema the schema of a table that names none
 */
export function namesOfHolder(holder: HolderTable, searchSchema?: string): WantedDeclaration<NamesDeclaration> {
  const { schema, table, names, primary, citus, of } = holder
  const { digest } = of
  const { label, ...guard } = labelOf(table)
  return wantedDeclaration({
    table: { schema, table },
    label,
    declaration: {
      kind: 'name',
      name: 'names',
      protocol: 1,
      in: of.schema === schema ? quote(of.table) : qualified(of.schema ?? searchSchema, of.table),
      key: primary.map((one) => one.name),
      // The keys have the order in which jsonb returns them.
      names: names.map(({ column, namespace, former: { state, interval }, normalizer = NOT_NORMALIZED }) => ({
        ...(interval === undefined ? {} : { for: interval }),
        column,
        ...(state === 'free' ? {} : { former: state }),
        namespace,
        ...(normalizer === NOT_NORMALIZED ? {} : { normalizer }),
      })),
      ...(isOwnDigest(digest) ? { hashed: digest.sql('n.text') } : {}),
      ...(citus === undefined ? {} : { citus }),
      ...guard,
    },
    triggers: [
      trigger(table, 'insert', 4, false, 'NEW TABLE AS new_rows'),
      trigger(table, 'update', 17, true, 'OLD TABLE AS old_rows NEW TABLE AS new_rows'),
      trigger(table, 'delete', 8, false, 'OLD TABLE AS old_rows'),
      trigger(table, 'truncate', 32, false),
      trigger(table, 'columns', 18, true),
    ],
    tables: [],
    writes: { schema: of.schema, table: of.table },
  })
}

/**
 * Lets former names go along with columns that are renamed, if a change of the table has detached them.
 *
 * @param columns the columns, with their former names
 */
export function renamedNames(
  { table, declaration, detach: without }: WantedDeclaration<NamesDeclaration>,
  former: NamesDeclaration,
  columns: readonly (readonly [column: string, former: string])[],
): HandOver | undefined {
  if (columns.length === 0) return undefined
  const given = (whole: NamesDeclaration, was: Readonly<Record<string, string>>): string =>
    attach(table, 'name', { ...shortDeclaration(whole), was })
  return {
    up: [without, given(declaration, Object.fromEntries(columns))],
    down: [without, given(former, Object.fromEntries(columns.map(([column, before]) => [before, column])))],
  }
}

/** Refuses direct changes of held names. */
export function directNames({ schema, table }: NamesTable): WantedDeclaration<NamesDeclaration> {
  const { label, ...guard } = labelOf(table)
  return wantedDeclaration({
    table: { schema, table },
    label,
    declaration: { kind: 'name', name: 'direct', protocol: 1, in: quote(table), key: [], names: [], ...guard },
    triggers: [trigger(table, 'write', 31, true), trigger(table, 'truncate', 32, false)],
    tables: [],
  })
}

/** The label of a name's normalizer if nothing normalizes the name. */
export const NOT_NORMALIZED = 'none@1'
