import { returningList } from '../sql/stored-row'
import type { EntityColumns } from './entity-text'

/** The RETURNING of TypeORM's own statements: the columns that `fill` takes. */
export const returnedBy = ({ select, spatial }: EntityColumns): string =>
  returningList({ select: select.map(({ databaseName }) => databaseName), spatial })
