import type { PeerFactory } from '../peer'
import { drizzle } from './drizzle'
import { kysely } from './kysely'
import { mikroOrm } from './mikro-orm'
import { prisma } from './prisma'
import { sequelize } from './sequelize'

/** The peers of bench/package.json. */
export const ORMS: readonly PeerFactory[] = [drizzle, kysely, prisma, mikroOrm, sequelize]
